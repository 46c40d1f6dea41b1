// Package snapshot validates VirtualMachineSnapshots at admission, and what may be changed of a
// VM while one is taken or it is restored.
package snapshot

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/util/validation/field"
	virtv1 "kubevirt.io/api/core/v1"
	snapshotv1 "kubevirt.io/api/snapshot/v1beta1"
)

// Immutable is what is said of a spec that was changed.
const Immutable = "spec in immutable after creation"

// Validate returns what is wrong with snapshot.
func Validate(snapshot *snapshotv1.VirtualMachineSnapshot) field.ErrorList {
	path := field.NewPath("spec")
	errs := Machine(&snapshot.Spec.Source, path.Child("source"))
	if deadline := snapshot.Spec.FailureDeadline; deadline != nil && deadline.Duration < 0 {
		errs = append(errs, field.Invalid(path.Child("failureDeadline"), deadline.Duration.String(), "must not be negative; 0s is for no deadline"))
	}
	return errs
}

// ValidateUpdate returns what is wrong with a change of old.
func ValidateUpdate(old, snapshot *snapshotv1.VirtualMachineSnapshot) field.ErrorList {
	if equality.Semantic.DeepEqual(old.Spec, snapshot.Spec) {
		return nil
	}
	return field.ErrorList{field.Forbidden(field.NewPath("spec"), Immutable)}
}

// Machine returns what is wrong with ref, at path, as the name of a VirtualMachine.
func Machine(ref *corev1.TypedLocalObjectReference, path *field.Path) field.ErrorList {
	switch {
	case ref.APIGroup == nil:
		return field.ErrorList{field.Required(path.Child("apiGroup"), "missing apiGroup")}
	case *ref.APIGroup != virtv1.SchemeGroupVersion.Group:
		return field.ErrorList{field.Invalid(path.Child("apiGroup"), *ref.APIGroup, "invalid apiGroup")}
	case ref.Kind != "VirtualMachine":
		return field.ErrorList{field.Invalid(path.Child("kind"), ref.Kind, "invalid kind")}
	case ref.Name == "":
		return field.ErrorList{field.Required(path.Child("name"), "the name of a VirtualMachine of this namespace")}
	}
	return nil
}

// ValidateMachine refuses a change of a VM that would change what is being taken of it, or start it with disks that
// are being exchanged. old is the VM as it was.
func ValidateMachine(old, vm *virtv1.VirtualMachine) field.ErrorList {
	path := field.NewPath("spec")
	if by := old.Status.SnapshotInProgress; by != nil {
		switch {
		case !equality.Semantic.DeepEqual(volumes(old), volumes(vm)):
			return field.ErrorList{field.Forbidden(path, fmt.Sprintf("Cannot update VM disks or volumes until snapshot %q completes", *by))}
		case strategy(old) != strategy(vm):
			return field.ErrorList{field.Forbidden(path, fmt.Sprintf("Cannot update VM running state until snapshot %q completes", *by))}
		}
	}
	if by := old.Status.RestoreInProgress; by != nil && strategy(old) != strategy(vm) && strategy(vm) != virtv1.RunStrategyHalted {
		return field.ErrorList{field.Forbidden(path, fmt.Sprintf("Cannot start VM until restore %q completes", *by))}
	}
	return nil
}

// volumes are the VM's volumes, disks and filesystems, and what its DataVolumes are made from.
func volumes(vm *virtv1.VirtualMachine) []any {
	if vm.Spec.Template == nil {
		return []any{vm.Spec.DataVolumeTemplates}
	}
	spec := &vm.Spec.Template.Spec
	return []any{vm.Spec.DataVolumeTemplates, spec.Volumes, spec.Domain.Devices.Disks, spec.Domain.Devices.Filesystems}
}

// strategy is the VM's run strategy, "" where it is none.
func strategy(vm *virtv1.VirtualMachine) virtv1.VirtualMachineRunStrategy {
	found, err := vm.RunStrategy()
	if err != nil {
		return ""
	}
	return found
}
