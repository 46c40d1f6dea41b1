package hyperconverged

import (
	"fmt"

	"k8s.io/apimachinery/pkg/util/validation/field"

	hcov1 "github.com/slipway-vm/slipway/internal/api/hco/v1"
	"github.com/slipway-vm/slipway/internal/tlspolicy"
)

// secure adds to the KubeVirt object's configuration how hco has servers speak TLS, where it says so. The CDI object has
// the profile as it is.
func secure(hco *hcov1.HyperConverged, configuration map[string]any) error {
	profile := hco.Spec.Security.TLSSecurityProfile
	if errs := tlspolicy.ValidateProfile(profile, field.NewPath("spec", "security", "tlsSecurityProfile")); len(errs) > 0 {
		return fmt.Errorf("HyperConverged %s: %w", hco.Name, errs.ToAggregate())
	}
	spoken := tlspolicy.OfProfile(profile).KubeVirt()
	if spoken == nil {
		return nil
	}
	fields, err := asMap(spoken)
	if err != nil {
		return fmt.Errorf("encoding the TLS of HyperConverged %s: %w", hco.Name, err)
	}
	configuration["tlsConfiguration"] = fields
	return nil
}
