package admission

import (
	"context"

	"k8s.io/apimachinery/pkg/util/validation/field"
	virtv1 "kubevirt.io/api/core/v1"

	"github.com/slipway-vm/slipway/controllers/admission/virtualmachineinstance"
	"github.com/slipway-vm/slipway/controllers/featuregate"
)

// gated refuses what spec, which is at path, has behind a feature gate that is off. What it had
// before, which may be nil, stays.
func (a admitter) gated(ctx context.Context, spec, before *virtv1.VirtualMachineInstanceSpec, path *field.Path) (field.ErrorList, error) {
	var errs field.ErrorList
	for _, gate := range featuregate.Known() {
		closed := virtualmachineinstance.Closed(gate, spec, before, path)
		if len(closed) == 0 {
			continue // and nobody is asked
		}
		on, err := featuregate.Read(ctx, a.resolver.Reader, gate)
		if err != nil {
			return nil, err
		}
		if !on {
			errs = append(errs, closed...)
		}
	}
	return errs, nil
}

// templateOf is the template's spec of a VM whose spec was given; nil for none.
func templateOf(spec *virtv1.VirtualMachineSpec) *virtv1.VirtualMachineInstanceSpec {
	if spec == nil || spec.Template == nil {
		return nil
	}
	return &spec.Template.Spec
}

// gatedMachine is gated for a VM's spec, which has a template.
func (a admitter) gatedMachine(ctx context.Context, spec, before *virtv1.VirtualMachineSpec, path *field.Path) (field.ErrorList, error) {
	return a.gated(ctx, &spec.Template.Spec, templateOf(before), path.Child("template", "spec"))
}

// gatedSet is gated for a replica set, which has a template.
func (a admitter) gatedSet(ctx context.Context, set, before *virtv1.VirtualMachineInstanceReplicaSet) (field.ErrorList, error) {
	var was *virtv1.VirtualMachineInstanceSpec
	if before != nil && before.Spec.Template != nil {
		was = &before.Spec.Template.Spec
	}
	return a.gated(ctx, &set.Spec.Template.Spec, was, field.NewPath("spec", "template", "spec"))
}
