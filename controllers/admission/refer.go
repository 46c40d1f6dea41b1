package admission

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/validation/field"
	virtv1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-vm/slipway/controllers/admission/virtualmachine"
	"github.com/slipway-vm/slipway/internal/rename"
)

// refer reads what vm, whose spec is at path, names, as the VM has it. A name that does not exist is the user's error; what is to
// be inferred from disks may come later, with them.
func (a admitter) refer(ctx context.Context, vm *virtv1.VirtualMachine, path *field.Path) (virtualmachine.Referred, field.ErrorList, error) {
	var referred virtualmachine.Referred
	if vm.Spec.Template == nil || vm.Spec.Instancetype == nil && vm.Spec.Preference == nil {
		return referred, nil, nil
	}
	if err := a.arriving(ctx, vm); err != nil {
		return referred, nil, err
	}
	it, preference, err := a.resolver.References(ctx, vm)
	if err != nil {
		return virtualmachine.Referred{Unknown: true}, nil, nil //nolint:nilerr // virt-controller says it in the VM's conditions, and tries again
	}
	if referred.Instancetype, _, err = a.resolver.Instancetype(ctx, vm.Namespace, it); err != nil {
		errs, err := notFound(at(path.Child("instancetype"), vm.Spec.Instancetype), it.Name, err)
		return referred, errs, err
	}
	if referred.Preference, _, err = a.resolver.Preference(ctx, vm.Namespace, preference); err != nil {
		errs, err := notFound(at(path.Child("preference"), vm.Spec.Preference), preference.Name, err)
		return referred, errs, err
	}
	return referred, nil, nil
}

// arriving lets a VM that takes the place of a renamed one be judged by the instance type and the preference that that one has: its own status, which says
// so, is written when it is there.
func (a admitter) arriving(ctx context.Context, vm *virtv1.VirtualMachine) error {
	origin, arrives := rename.OriginOf(vm)
	if !arrives {
		return nil
	}
	old := &virtv1.VirtualMachine{}
	err := a.reader.Get(ctx, client.ObjectKey{Namespace: vm.Namespace, Name: origin.Name}, old)
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("reading VirtualMachine %s, which is renamed: %w", origin.Name, err)
	}
	if err == nil && old.UID == origin.UID {
		vm.Status.InstancetypeRef, vm.Status.PreferenceRef = old.Status.InstancetypeRef, old.Status.PreferenceRef
	}
	return nil
}

// at is the part of a matcher that names what is read.
func at(path *field.Path, matcher virtv1.Matcher) *field.Path {
	if matcher.GetRevisionName() != "" {
		return path.Child("revisionName")
	}
	return path
}

// notFound words the failure to read what a user named; a failure to ask is no answer.
func notFound(path *field.Path, name string, err error) (field.ErrorList, error) {
	if status := apierrors.ReasonForError(err); status != "" && !apierrors.IsNotFound(err) {
		return nil, fmt.Errorf("reading what %s names: %w", path, err)
	}
	return field.ErrorList{field.Invalid(path, name, err.Error())}, nil
}
