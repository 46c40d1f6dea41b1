package virtualmachineclone

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clonev1 "kubevirt.io/api/clone/v1beta1"
	snapshotv1 "kubevirt.io/api/snapshot/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-vm/slipway/controllers/virtualmachinerestore"
	"github.com/slipway-vm/slipway/controllers/virtualmachinesnapshot"
	"github.com/slipway-vm/slipway/internal/names"
	"github.com/slipway-vm/slipway/internal/steps"
)

// startRestore asks for the new VM.
func (r *Reconciler) startRestore(ctx context.Context, s *scope) error {
	if s.begun() {
		return nil
	}
	restore, err := newRestore(s.clone, s.snapshot, s.content)
	if err != nil {
		return fail(reasonRestoreNotMade, "%v", err)
	}
	err = r.Create(ctx, restore, client.FieldOwner(names.ManagerController))
	switch {
	case refused(err):
		return poll(reasonRestoreNotMade, "failed creating restore %s for clone %s: %v", restore.Name, s.clone.Name, err)
	case err != nil:
		return fmt.Errorf("creating VirtualMachineRestore %s: %w", client.ObjectKeyFromObject(restore), err)
	}
	s.restore = restore
	r.normal(s, reasonSnapshotReady, "snapshot %s for clone %s is ready to use", s.snapshot.Name, s.clone.Name)
	r.normal(s, reasonRestoreCreated, "created restore %s for clone %s", restore.Name, s.clone.Name)
	return steps.ErrDone // its change is watched
}

// newRestore makes the restore that makes clone's VM, and goes with clone. Its errors are for the user, and for good.
func newRestore(clone *clonev1.VirtualMachineClone, snapshot *snapshotv1.VirtualMachineSnapshot, content *snapshotv1.VirtualMachineSnapshotContent) (*snapshotv1.VirtualMachineRestore, error) {
	restore := &snapshotv1.VirtualMachineRestore{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: clone.Namespace, Name: restoreName(clone.UID),
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(clone, clonev1.VirtualMachineCloneKind)},
		},
		Spec: snapshotv1.VirtualMachineRestoreSpec{Target: machineRef(targetName(clone)), VirtualMachineSnapshotName: snapshot.Name},
	}
	if policy := clone.Spec.VolumeNamePolicy; policy != nil {
		restore.Spec.VolumeRestorePolicy = new(policy.ToVolumeRestorePolicy())
	}
	source := snapshot.Status.SourceUID
	plain, err := virtualmachinerestore.Planned(restore, content, source)
	if err != nil {
		return nil, fmt.Errorf("reading the VirtualMachine of snapshot %s: %w", snapshot.Name, err)
	}
	own, err := patches(clone, content.Spec.Source.VirtualMachine, plain)
	if err != nil {
		return nil, err
	}
	restore.Spec.Patches = slices.Concat(own, clone.Spec.Patches)
	planned, err := virtualmachinerestore.Planned(restore, content, source)
	if err != nil {
		return nil, err //nolint:wrapcheck // it is about this object's field of the same name
	}
	return restore, distinct(content.Spec.Source.VirtualMachine, source, planned)
}

// awaitRestore waits until the restore has done its work.
func (r *Reconciler) awaitRestore(_ context.Context, s *scope) error {
	if s.restore == nil { // somebody has deleted it since, which it outlived until the VM had its disks
		return nil
	}
	if complete(s.restore) {
		r.normal(s, reasonRestoreReady, "restore %s for clone %s is ready to use", s.restore.Name, s.clone.Name)
		return nil
	}
	if s.restore.Status == nil {
		return steps.ErrDone
	}
	conditions := s.restore.Status.Conditions
	for _, c := range conditions {
		if c.Type == snapshotv1.ConditionFailure && c.Status == corev1.ConditionTrue {
			return fail(reasonRestoreFailed, "restore %s failed: %s", s.restore.Name, c.Reason)
		}
	}
	s.waits = fmt.Sprintf("restore %s: %s", s.restore.Name, virtualmachinesnapshot.Said(conditions, snapshotv1.ConditionProgressing))
	return steps.ErrDone
}

// finish says that the VM is there.
func (r *Reconciler) finish(_ context.Context, s *scope) error {
	s.done = true
	r.normal(s, reasonTargetCreated, "created target VM %s for clone %s", targetName(s.clone), s.clone.Name)
	return nil
}

// goWithTarget deletes the clone when its VM is gone, or is renamed, so that another can be made from the same manifest.
func (r *Reconciler) goWithTarget(ctx context.Context, s *scope) error {
	if s.target != nil {
		return nil
	}
	s.gone = true
	if err := r.Delete(ctx, s.clone, client.Preconditions{UID: &s.clone.UID}); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("deleting VirtualMachineClone %s, whose VM is gone: %w", client.ObjectKeyFromObject(s.clone), err)
	}
	return steps.ErrDone
}

// awaitClaims waits until the VM's disks do not need the snapshot any more.
func (r *Reconciler) awaitClaims(ctx context.Context, s *scope) error {
	if settled(s.clone) {
		return nil
	}
	claims := &corev1.PersistentVolumeClaimList{}
	if err := r.live.List(ctx, claims, client.InNamespace(s.clone.Namespace)); err != nil {
		return fmt.Errorf("listing the PersistentVolumeClaims of %s: %w", s.clone.Namespace, err)
	}
	for i := range claims.Items {
		claim := &claims.Items[i]
		ours := claim.Annotations[virtualmachinerestore.AnnotationName] == restoreName(s.clone.UID)
		if ours && claim.DeletionTimestamp == nil && claim.Status.Phase != corev1.ClaimBound && claim.Status.Phase != corev1.ClaimLost {
			return steps.ErrDone // its change is watched
		}
	}
	r.normal(s, reasonBound, "all PVC for clone %s are bound", s.clone.Name)
	return nil
}

// clear removes what the VM was made with, but for a snapshot that is the user's.
func (r *Reconciler) clear(ctx context.Context, s *scope) error {
	var made []client.Object
	if s.restore != nil {
		made = append(made, s.restore)
	}
	if s.snapshot != nil && ofMachine(s.clone) {
		made = append(made, s.snapshot)
	}
	for _, object := range made {
		if object.GetDeletionTimestamp() != nil {
			continue
		}
		uid := object.GetUID()
		if err := r.Delete(ctx, object, client.Preconditions{UID: &uid}); client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("deleting %T %s: %w", object, client.ObjectKeyFromObject(object), err)
		}
	}
	s.restore, s.snapshot, s.cleared = nil, nil, true
	return nil
}
