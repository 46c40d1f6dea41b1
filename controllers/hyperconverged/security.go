package hyperconverged

import (
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"

	hcov1 "github.com/slipway-vm/slipway/internal/api/hco/v1"
	"github.com/slipway-vm/slipway/internal/certs"
	"github.com/slipway-vm/slipway/internal/tlspolicy"
)

// speak adds to the KubeVirt object's configuration how hco has servers speak TLS, where it says so. The CDI object has the
// profile as it is.
func speak(hco *hcov1.HyperConverged, configuration map[string]any) error {
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

// certify adds to the KubeVirt object's spec how long hco has certificates valid, where it says so.
func certify(hco *hcov1.HyperConverged, spec map[string]any) error {
	asked := lifetimes(hco)
	if errs := certs.ValidateCDI(asked, field.NewPath("spec", "security", "certConfig")); len(errs) > 0 {
		return fmt.Errorf("HyperConverged %s: %w", hco.Name, errs.ToAggregate())
	}
	if asked == nil {
		return nil
	}
	fields, err := asMap(cdiv1.CDICertConfig{CA: asked.CA, Server: asked.Server})
	if err != nil {
		return fmt.Errorf("encoding certConfig of HyperConverged %s: %w", hco.Name, err)
	}
	spec["certificateRotateStrategy"] = map[string]any{"selfSigned": fields}
	return nil
}

// lifetimes are how long hco has certificates valid, in the CDI object's words; nil when it says nothing. The KubeVirt object
// means another time before their end when that is left out, so it is not.
func lifetimes(hco *hcov1.HyperConverged) *cdiv1.CDICertConfig {
	asked := hco.Spec.Security.CertConfig
	if asked == nil || asked.CA == nil && asked.Server == nil {
		return nil
	}
	complete := func(one *cdiv1.CertConfig) *cdiv1.CertConfig {
		if one == nil || one.Duration == nil || one.RenewBefore != nil {
			return one
		}
		return &cdiv1.CertConfig{Duration: one.Duration, RenewBefore: &metav1.Duration{Duration: one.Duration.Duration / 2}}
	}
	return &cdiv1.CDICertConfig{CA: complete(asked.CA), Server: complete(asked.Server), Client: complete(asked.Server)}
}
