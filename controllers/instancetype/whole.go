package instancetype

import (
	"context"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	virtv1 "kubevirt.io/api/core/v1"

	"github.com/slipway-vm/slipway/controllers/virtualmachineinstance/defaults"
)

// Expand puts what vm's instance type and preference say, as vm has them, into its template, and takes the references to
// them out, so that the result can be used as it is.
func (r Resolver) Expand(ctx context.Context, vm *virtv1.VirtualMachine) error {
	if vm.Spec.Instancetype == nil && vm.Spec.Preference == nil || vm.Spec.Template == nil {
		return nil
	}
	it, preference, err := r.References(ctx, vm)
	if err != nil {
		return fmt.Errorf("finding what the virtual machine refers to: %w", err)
	}
	itSpec, _, err := r.Instancetype(ctx, vm.Namespace, it)
	if err != nil {
		return fmt.Errorf("finding the instance type: %w", err)
	}
	preferenceSpec, _, err := r.Preference(ctx, vm.Namespace, preference)
	if err != nil {
		return fmt.Errorf("finding the preference: %w", err)
	}
	template := vm.Spec.Template
	vmi := &virtv1.VirtualMachineInstance{
		ObjectMeta: metav1.ObjectMeta{Annotations: template.ObjectMeta.Annotations, Labels: template.ObjectMeta.Labels}, Spec: *template.Spec.DeepCopy(),
	}
	defaults.Disks(&vmi.Spec)
	defaults.Interface(&vmi.Spec)
	if errs := Apply(vmi, itSpec, preferenceSpec, field.NewPath("spec", "template", "spec")); len(errs) > 0 {
		return fmt.Errorf("cannot expand instancetype to VM: %w", errs.ToAggregate())
	}
	template.ObjectMeta.Annotations, template.ObjectMeta.Labels, template.Spec = vmi.Annotations, vmi.Labels, vmi.Spec
	for i := range vm.Spec.DataVolumeTemplates {
		FillClass(&vm.Spec.DataVolumeTemplates[i].Spec, PreferredClass(preferenceSpec))
	}
	vm.Spec.Instancetype, vm.Spec.Preference = nil, nil
	return nil
}
