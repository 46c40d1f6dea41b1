package virtualmachinerestore

import (
	"context"
	"fmt"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	virtv1 "kubevirt.io/api/core/v1"
	snapshotv1 "kubevirt.io/api/snapshot/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-vm/slipway/controllers/instancetype"
	"github.com/slipway-vm/slipway/internal/keep"
	"github.com/slipway-vm/slipway/internal/names"
)

// A VM that is restored has the instance type and the preference of then: revisions of its own, copies of those that the content has.

// typesOf are what content's VM had, and what the VM of the name is to have of it.
func typesOf(content *snapshotv1.VirtualMachineSnapshotContent, name string) (had, has virtv1.VirtualMachineStatus) {
	had = content.Spec.Source.VirtualMachine.Status
	has.InstancetypeRef = instancetype.Moved(had.InstancetypeRef, content.Name, name)
	has.PreferenceRef = instancetype.Moved(had.PreferenceRef, content.Name, name)
	return had, has
}

// keepTypes makes spec, of the VM of the name, ask for the revisions that it has of content's. One that asks for something else stays.
func keepTypes(spec *virtv1.VirtualMachineSpec, content *snapshotv1.VirtualMachineSnapshotContent, name string) {
	_, has := typesOf(content, name)
	instancetype.Pin(spec, &has)
}

// unpin drops revisions that pinned has from spec, where a patch has it ask for something else by its name.
func unpin(pinned, spec *virtv1.VirtualMachineSpec) {
	if was, is := pinned.Instancetype, spec.Instancetype; was != nil && is != nil && was.RevisionName == is.RevisionName && (was.Name != is.Name || was.Kind != is.Kind) {
		is.RevisionName = ""
	}
	if was, is := pinned.Preference, spec.Preference; was != nil && is != nil && was.RevisionName == is.RevisionName && (was.Name != is.Name || was.Kind != is.Kind) {
		is.RevisionName = ""
	}
}

// createTypes makes the revisions, which go with the restore until they are the VM's: it is only admitted when they are there.
func (r *Reconciler) createTypes(ctx context.Context, s *scope) error {
	if s.restored() {
		return nil
	}
	had, has := typesOf(s.content, s.restore.Spec.Target.Name)
	for _, one := range [][2]string{
		{instancetype.RevisionOf(had.InstancetypeRef), instancetype.RevisionOf(has.InstancetypeRef)},
		{instancetype.RevisionOf(had.PreferenceRef), instancetype.RevisionOf(has.PreferenceRef)},
	} {
		if one[0] == "" {
			continue
		}
		kept := &appsv1.ControllerRevision{}
		found, err := r.get(ctx, client.ObjectKey{Namespace: s.restore.Namespace, Name: one[0]}, kept)
		if err != nil {
			return err
		}
		if !found {
			return fail("ControllerRevision %s, which holds what the VM had, is gone", one[0])
		}
		if err := r.createType(ctx, s, instancetype.Copy(kept, one[1])); err != nil {
			return err
		}
	}
	return nil
}

// createType makes one, or keeps the one that there is: a VM of the name may have had it, and be gone.
func (r *Reconciler) createType(ctx context.Context, s *scope, revision *appsv1.ControllerRevision) error {
	owner := *metav1.NewControllerRef(s.restore, snapshotv1.SchemeGroupVersion.WithKind("VirtualMachineRestore"))
	owner.Controller, owner.BlockOwnerDeletion = nil, nil
	revision.OwnerReferences = []metav1.OwnerReference{owner}
	key := client.ObjectKeyFromObject(revision)
	err := r.Create(ctx, revision, client.FieldOwner(names.ManagerController))
	if !apierrors.IsAlreadyExists(err) {
		if err != nil {
			return refusal(fmt.Errorf("creating ControllerRevision %s: %w", key, err))
		}
		return nil
	}
	if found, err := r.get(ctx, key, revision); err != nil || !found {
		return err
	}
	if len(revision.OwnerReferences) == 0 && revision.Labels[keep.LabelFor] == "" {
		return nil // somebody keeps it, with an end of his own
	}
	for _, owner := range revision.OwnerReferences {
		if owner.UID == s.restore.UID || s.vm != nil && owner.UID == s.vm.UID {
			return nil
		}
	}
	return r.change(ctx, revision, func() { revision.OwnerReferences = append(revision.OwnerReferences, owner) })
}

// ownTypes gives the revisions that the VM asks for, and the restore made, to the VM.
func (r *Reconciler) ownTypes(ctx context.Context, s *scope) error {
	var asked []string
	if m := s.vm.Spec.Instancetype; m != nil {
		asked = append(asked, m.RevisionName)
	}
	if m := s.vm.Spec.Preference; m != nil {
		asked = append(asked, m.RevisionName)
	}
	for _, name := range asked {
		if name == "" {
			continue
		}
		revision := &appsv1.ControllerRevision{}
		found, err := r.get(ctx, client.ObjectKey{Namespace: s.restore.Namespace, Name: name}, revision)
		if err != nil {
			return err
		}
		ours := func(owner metav1.OwnerReference) bool { return owner.UID == s.restore.UID }
		if !found || !slices.ContainsFunc(revision.OwnerReferences, ours) {
			continue
		}
		err = r.change(ctx, revision, func() {
			revision.OwnerReferences = slices.DeleteFunc(revision.OwnerReferences, ours)
			giveType(revision, s.vm)
		})
		if client.IgnoreNotFound(err) != nil {
			return err
		}
	}
	return nil
}

// giveType makes vm an owner of revision; beside another VM's, where that had it.
func giveType(revision *appsv1.ControllerRevision, vm *virtv1.VirtualMachine) {
	if metav1.GetControllerOf(revision) == nil {
		keep.Give(revision, vm)
		return
	}
	owner := *metav1.NewControllerRef(vm, virtv1.VirtualMachineGroupVersionKind)
	owner.Controller, owner.BlockOwnerDeletion = nil, nil
	revision.OwnerReferences = append(revision.OwnerReferences, owner)
}
