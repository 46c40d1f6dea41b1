package virtualmachine

import (
	"context"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	virtv1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-vm/slipway/controllers/instancetype"
	"github.com/slipway-vm/slipway/internal/keep"
	"github.com/slipway-vm/slipway/internal/names"
)

// keepParts keeps p's instance type and preference as they are now: the VM has them like this from now on, whatever becomes of the objects.
func (r *Reconciler) keepParts(ctx context.Context, s *scope, p parts) error {
	var err error
	if s.instancetype, err = r.keepPart(ctx, s.vm, p.instancetypeRef, p.instancetypeObject); err != nil {
		return err
	}
	s.preference, err = r.keepPart(ctx, s.vm, p.preferenceRef, p.preferenceObject)
	return err
}

// keepPart makes the revision of object, nil where there is one, and returns ref with it.
func (r *Reconciler) keepPart(ctx context.Context, vm *virtv1.VirtualMachine, ref instancetype.Reference, object client.Object) (instancetype.Reference, error) {
	if object == nil {
		return ref, nil
	}
	revision, err := instancetype.NewRevision(vm, object)
	if err != nil {
		return ref, fmt.Errorf("keeping %s %s for VirtualMachine %s/%s: %w", ref.Kind, ref.Name, vm.Namespace, vm.Name, err)
	}
	ref.Revision = revision.Name
	err = r.Create(ctx, revision, client.FieldOwner(names.ManagerController))
	if apierrors.IsAlreadyExists(err) {
		return ref, r.sharePart(ctx, vm, revision)
	}
	if err != nil {
		return ref, fmt.Errorf("creating ControllerRevision %s/%s: %w", revision.Namespace, revision.Name, err)
	}
	return ref, nil
}

// sharePart makes vm an owner of a revision that is there already: by an earlier pass, or of a VM that had vm's name. One that is
// nobody's stays so: somebody keeps it, with an end of his own.
func (r *Reconciler) sharePart(ctx context.Context, vm *virtv1.VirtualMachine, revision *appsv1.ControllerRevision) error {
	key := client.ObjectKeyFromObject(revision)
	if err := r.live.Get(ctx, key, revision); err != nil {
		return fmt.Errorf("reading ControllerRevision %s: %w", key, err)
	}
	kept := revision.Labels[keep.LabelFor]
	if place(revision.OwnerReferences, vm.UID) >= 0 || kept == string(vm.UID) || len(revision.OwnerReferences) == 0 && kept == "" {
		return nil
	}
	before := revision.DeepCopy()
	owner := *metav1.NewControllerRef(vm, virtv1.VirtualMachineGroupVersionKind)
	if metav1.GetControllerOf(revision) != nil {
		owner.Controller, owner.BlockOwnerDeletion = nil, nil
	}
	revision.OwnerReferences = append(revision.OwnerReferences, owner)
	patch := client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})
	if err := r.Patch(ctx, revision, patch, client.FieldOwner(names.ManagerController)); err != nil {
		return fmt.Errorf("giving ControllerRevision %s to VirtualMachine %s: %w", key, vm.Name, err)
	}
	return nil
}

// keepNamed keeps the instance type and the preference of a VM that runs as it is defined, where its status does not have them yet: an earlier version
// started it, or a pass was broken off. What it was started with is known by then, or else is what there is now.
func (r *Reconciler) keepNamed(ctx context.Context, s *scope) error {
	ofType := s.vm.Spec.Instancetype != nil && lacks(s.vm.Spec.Instancetype, s.instancetype)
	ofPreference := s.vm.Spec.Preference != nil && lacks(s.vm.Spec.Preference, s.preference)
	if !ofType && !ofPreference {
		return nil
	}
	vm, err := r.startedWith(ctx, s)
	if err != nil {
		return err
	}
	if vm == nil {
		vm = s.vm.DeepCopy()
	}
	vm.Spec = s.vm.Spec
	if ofType {
		ref, err := r.resolver.InstancetypeOf(ctx, vm)
		if err != nil {
			return err
		}
		if s.instancetype, err = r.keepMissing(ctx, vm, s.instancetype, ref, func() (client.Object, error) {
			_, object, err := r.resolver.Instancetype(ctx, vm.Namespace, ref)
			return object, err
		}); err != nil {
			return err
		}
	}
	if !ofPreference {
		return nil
	}
	ref, err := r.resolver.PreferenceOf(ctx, vm)
	if err != nil {
		return err
	}
	s.preference, err = r.keepMissing(ctx, vm, s.preference, ref, func() (client.Object, error) {
		_, object, err := r.resolver.Preference(ctx, vm.Namespace, ref)
		return object, err
	})
	return err
}

// lacks says whether a running VM's status is to have a revision of what m asks for. What would have to be inferred was not when it started.
func lacks(m virtv1.Matcher, has instancetype.Reference) bool {
	if has.Revision != "" && instancetype.StillAsked(m, refOf(true, has)) {
		return false
	}
	return m.GetInferFromVolume() == "" || has.Name != ""
}

// keepMissing keeps what ref names, unless a revision holds it; was is what the VM has by now.
func (r *Reconciler) keepMissing(ctx context.Context, vm *virtv1.VirtualMachine, was, ref instancetype.Reference, read func() (client.Object, error)) (instancetype.Reference, error) {
	if ref.Revision != "" {
		return ref, nil
	}
	object, err := read()
	if apierrors.IsNotFound(err) {
		return was, nil
	}
	if err != nil {
		return was, err
	}
	return r.keepPart(ctx, vm, ref, object)
}
