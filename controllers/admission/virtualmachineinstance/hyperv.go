package virtualmachineinstance

import (
	"fmt"

	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"
	virtv1 "kubevirt.io/api/core/v1"

	"github.com/slipway-vm/slipway/controllers/virtualmachineinstance/defaults"
)

// hyperv checks that each of Hyper-V's features has those that it needs, which were completed where
// nothing was said of them.
func hyperv(spec *virtv1.VirtualMachineInstanceSpec, path *field.Path) field.ErrorList {
	features := spec.Domain.Features
	if features == nil || features.Hyperv == nil {
		return nil
	}
	var errs field.ErrorList
	at := path.Child("domain", "features", "hyperv")
	if pass := features.HypervPassthrough; pass != nil && ptr.Deref(pass.Enabled, false) {
		errs = append(errs, field.Forbidden(at, "hypervPassthrough gives the guest all of them; remove one of the two"))
	}
	for _, lack := range defaults.HypervLacks(features.Hyperv) {
		errs = append(errs, field.Invalid(at.Child(lack.Needs), false, fmt.Sprintf("%s needs this feature; leave it out to have it turned on, or remove %s", lack.Feature, lack.Feature)))
	}
	if i := defaults.LacksVMX(&spec.Domain); i >= 0 {
		feature := spec.Domain.CPU.Features[i]
		errs = append(errs, field.Invalid(path.Child("domain", "cpu", "features").Index(i).Child("policy"), feature.Policy,
			fmt.Sprintf("features.hyperv.evmcs needs the CPU feature %s; make its policy require, or remove one of them", feature.Name)))
	}
	return errs
}
