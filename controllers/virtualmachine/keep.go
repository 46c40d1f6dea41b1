package virtualmachine

import (
	"context"
	"fmt"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	virtv1 "kubevirt.io/api/core/v1"
	api "kubevirt.io/api/instancetype"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/slipway-vm/slipway/controllers/instancetype"
	"github.com/slipway-vm/slipway/internal/keep"
	"github.com/slipway-vm/slipway/internal/names"
	"github.com/slipway-vm/slipway/internal/namespace"
	"github.com/slipway-vm/slipway/internal/rename"
)

// The volumes of a VM that asks for it belong to nobody, so that no garbage collector takes them, whichever way the VM is deleted: a
// label says whose they are, and so it is with the revisions of its instance type and preference. Its definition is recorded when it is deleted, and one that is made of the record takes them.

// keepVolumes takes the volumes from a VM that asks for it.
func (r *Reconciler) keepVolumes(ctx context.Context, s *scope) error {
	if !keep.Volumes(s.vm) {
		return nil
	}
	from := client.Reader(r.Client)
	if s.vm.DeletionTimestamp != nil { // there is no pass after the last
		from = r.live
	}
	owned := func(volume client.Object) bool { return place(volume.GetOwnerReferences(), s.vm.UID) >= 0 }
	return r.changeVolumes(ctx, from, s.vm, owned, func(volume client.Object) {
		volume.SetOwnerReferences(slices.DeleteFunc(volume.GetOwnerReferences(), func(owner metav1.OwnerReference) bool { return owner.UID == s.vm.UID }))
		keep.For(volume, s.vm.UID)
	})
}

// takeKept gives a VM that is brought back the volumes that were kept for it, and forgets the record of it.
func (r *Reconciler) takeKept(ctx context.Context, s *scope) error {
	name := s.vm.Annotations[keep.AnnotationRecord]
	if name == "" {
		return nil
	}
	record := &appsv1.ControllerRevision{}
	err := r.live.Get(ctx, client.ObjectKey{Namespace: s.vm.Namespace, Name: name}, record)
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("reading ControllerRevision %s/%s: %w", s.vm.Namespace, name, err)
	}
	if was, problem := keep.Recorded(record); err == nil && problem == nil && was.Name == s.vm.Name {
		if err := r.giveKept(ctx, s.vm, was.UID); err != nil {
			return err
		}
		if err := r.Delete(ctx, record, client.Preconditions{UID: &record.UID}); client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("deleting ControllerRevision %s/%s: %w", s.vm.Namespace, name, err)
		}
	}
	changed := s.vm.DeepCopy()
	delete(changed.Annotations, keep.AnnotationRecord)
	if err := r.patch(ctx, changed, s.vm); err != nil {
		return err
	}
	s.vm = changed
	return nil
}

// giveKept says that what was kept for the VM of uid was is kept for vm.
func (r *Reconciler) giveKept(ctx context.Context, vm *virtv1.VirtualMachine, was types.UID) error {
	kept := func(volume client.Object) bool {
		return volume.GetLabels()[keep.LabelFor] == string(was) && metav1.GetControllerOf(volume) == nil
	}
	return r.changeVolumes(ctx, r.live, vm, kept, func(volume client.Object) {
		keep.For(volume, vm.UID)
		if labels := volume.GetLabels(); labels[virtv1.CreatedByLabel] == string(was) {
			labels[virtv1.CreatedByLabel] = string(vm.UID)
		}
	})
}

// keptParts are the revisions of instance types and preferences in vm's namespace; none where vm has neither.
func (r *Reconciler) keptParts(ctx context.Context, vm *virtv1.VirtualMachine) ([]client.Object, error) {
	if vm.Spec.Instancetype == nil && vm.Spec.Preference == nil {
		return nil, nil
	}
	list := &appsv1.ControllerRevisionList{}
	if err := r.live.List(ctx, list, client.InNamespace(vm.Namespace), client.HasLabels{api.ControllerRevisionObjectKindLabel}); err != nil {
		return nil, fmt.Errorf("listing the revisions of instance types in %s: %w", vm.Namespace, err)
	}
	var all []client.Object
	for i := range list.Items {
		all = append(all, &list.Items[i])
	}
	return all, nil
}

// changeVolumes changes those DataVolumes, claims, and revisions of instance types in vm's namespace that are chosen.
func (r *Reconciler) changeVolumes(ctx context.Context, from client.Reader, vm *virtv1.VirtualMachine, chosen func(client.Object) bool, change func(client.Object)) error {
	volumes, err := r.keptParts(ctx, vm)
	if err != nil {
		return err
	}
	dataVolumes, claims := &cdiv1.DataVolumeList{}, &corev1.PersistentVolumeClaimList{}
	for _, list := range []client.ObjectList{dataVolumes, claims} {
		if err := from.List(ctx, list, client.InNamespace(vm.Namespace)); err != nil {
			return fmt.Errorf("listing the volumes of VirtualMachine %s/%s: %w", vm.Namespace, vm.Name, err)
		}
	}
	for i := range dataVolumes.Items {
		volumes = append(volumes, &dataVolumes.Items[i])
	}
	for i := range claims.Items {
		volumes = append(volumes, &claims.Items[i])
	}
	for _, volume := range volumes {
		if !chosen(volume) {
			continue
		}
		before, ok := volume.DeepCopyObject().(client.Object)
		if !ok {
			return fmt.Errorf("copying %T %s failed", volume, volume.GetName())
		}
		change(volume)
		patch := client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})
		if err := r.Patch(ctx, volume, patch, client.FieldOwner(names.ManagerController)); client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("changing %T %s of VirtualMachine %s: %w", volume, client.ObjectKeyFromObject(volume), vm.Name, err)
		}
	}
	return nil
}

// recordDeleted writes down what a VM was whose volumes are kept, and what its guest was known by. One that was to take the place of a
// VM that stays never had its disks.
func (r *Reconciler) recordDeleted(ctx context.Context, s *scope) error {
	if !keep.Volumes(s.vm) || !controllerutil.ContainsFinalizer(s.vm, virtv1.VirtualMachineControllerFinalizer) {
		return nil
	}
	if _, arriving := rename.OriginOf(s.vm); arriving {
		if old, err := r.origin(ctx, s); err != nil || old != nil && old.DeletionTimestamp == nil {
			return err
		}
	}
	vm := s.vm.DeepCopy()
	instancetype.Pin(&vm.Spec, &vm.Status)
	if vm.Spec.Template != nil {
		vm.Spec.Template.Spec.Domain.Firmware = firmwareOf(vm.Spec.Template.Spec.Domain.Firmware, vm)
	}
	record, err := keep.Record(vm)
	if err != nil {
		return fmt.Errorf("keeping the volumes of a deleted VM: %w", err)
	}
	err = r.Create(ctx, record, client.FieldOwner(names.ManagerController))
	switch {
	case apierrors.IsAlreadyExists(err), namespace.Ending(err):
		return nil
	case err != nil:
		return fmt.Errorf("creating ControllerRevision %s: %w", client.ObjectKeyFromObject(record), err)
	}
	r.normal(s.vm, reasonKept, "Its volumes are kept; bring it back with: virtctl undelete vm %s", vm.Name)
	return nil
}
