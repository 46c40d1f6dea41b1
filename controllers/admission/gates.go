package admission

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/util/validation/field"
	virtv1 "kubevirt.io/api/core/v1"

	"github.com/slipway-vm/slipway/controllers/admission/virtualmachineinstance"
	"github.com/slipway-vm/slipway/controllers/featuregate"
)

// kubevirt reads the cluster's KubeVirt object as it is now, once for each object that is judged: what an administrator has just opened is open,
// and what he has closed is closed. Without one it is empty.
func (a admitter) kubevirt(ctx context.Context) (*virtv1.KubeVirt, error) {
	list := &virtv1.KubeVirtList{}
	if err := a.reader.List(ctx, list); err != nil {
		return nil, fmt.Errorf("reading the KubeVirt object: %w", err)
	}
	if len(list.Items) == 0 {
		return &virtv1.KubeVirt{}, nil
	}
	return &list.Items[0], nil
}

// gated refuses what spec, which is at path, has behind a feature gate that kv leaves off. What it had
// before, which may be nil, stays.
func gated(kv *virtv1.KubeVirt, spec, before *virtv1.VirtualMachineInstanceSpec, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	for _, gate := range featuregate.Known() {
		if !featuregate.On(kv, gate) {
			errs = append(errs, virtualmachineinstance.Closed(gate, spec, before, path)...)
		}
	}
	return errs
}

// templateOf is the template's spec of a VM whose spec was given; nil for none.
func templateOf(spec *virtv1.VirtualMachineSpec) *virtv1.VirtualMachineInstanceSpec {
	if spec == nil || spec.Template == nil {
		return nil
	}
	return &spec.Template.Spec
}

// gatedMachine is gated for a VM's spec, which has a template.
func gatedMachine(kv *virtv1.KubeVirt, spec, before *virtv1.VirtualMachineSpec, path *field.Path) field.ErrorList {
	return gated(kv, &spec.Template.Spec, templateOf(before), path.Child("template", "spec"))
}

// gatedSet is gated for a replica set, which has a template.
func gatedSet(kv *virtv1.KubeVirt, set, before *virtv1.VirtualMachineInstanceReplicaSet) field.ErrorList {
	var was *virtv1.VirtualMachineInstanceSpec
	if before != nil && before.Spec.Template != nil {
		was = &before.Spec.Template.Spec
	}
	return gated(kv, &set.Spec.Template.Spec, was, field.NewPath("spec", "template", "spec"))
}
