package virtualmachinerestore

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	virtv1 "kubevirt.io/api/core/v1"
	snapshotv1 "kubevirt.io/api/snapshot/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/slipway-vm/slipway/controllers/virtualmachinesnapshot"
	"github.com/slipway-vm/slipway/controllers/volumemigration"
	"github.com/slipway-vm/slipway/internal/names"
	"github.com/slipway-vm/slipway/internal/rename"
	"github.com/slipway-vm/slipway/internal/steps"
)

// protect keeps the restore until its VM is unlocked, and lets it go with its VM.
func (r *Reconciler) protect(ctx context.Context, s *scope) error {
	return r.change(ctx, s.restore, func() {
		controllerutil.AddFinalizer(s.restore, Finalizer)
		if s.vm != nil && s.vm.DeletionTimestamp == nil && len(s.restore.OwnerReferences) == 0 {
			s.restore.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(s.vm, virtv1.VirtualMachineGroupVersionKind)}
		}
	})
}

// removeFinalizer lets the restore go.
func (r *Reconciler) removeFinalizer(ctx context.Context, s *scope) error {
	s.gone = true
	return ifThere(r.change(ctx, s.restore, func() { controllerutil.RemoveFinalizer(s.restore, Finalizer) }))
}

// findSnapshot finds what is to be restored. A VM that has its definition needs it no more.
func (r *Reconciler) findSnapshot(ctx context.Context, s *scope) error {
	if s.restored() {
		return nil
	}
	key := client.ObjectKey{Namespace: s.restore.Namespace, Name: s.restore.Spec.VirtualMachineSnapshotName}
	snapshot, content := &snapshotv1.VirtualMachineSnapshot{}, &snapshotv1.VirtualMachineSnapshotContent{}
	found, err := r.get(ctx, key, snapshot)
	switch {
	case err != nil:
		return err
	case !found:
		return fail("VMSnapshot %s does not exist", key)
	case snapshot.Status != nil && snapshot.Status.Phase == snapshotv1.Failed:
		return fail("VMSnapshot %s failed and is invalid to use", key)
	case snapshot.DeletionTimestamp != nil:
		return fail("VMSnapshot %s is being deleted", key)
	case !virtualmachinesnapshot.Ready(snapshot):
		return fail("VMSnapshot %s not ready", key)
	}
	key.Name = virtualmachinesnapshot.ContentName(snapshot)
	found, err = r.get(ctx, key, content)
	switch {
	case err != nil:
		return err
	case !found:
		return fail("VMSnapshotContent %s does not exist", key)
	case !virtualmachinesnapshot.ContentReady(content):
		return fail("VMSnapshotContent %s not ready", key)
	case content.Spec.Source.VirtualMachine == nil || content.Spec.Source.VirtualMachine.Spec.Template == nil:
		return fail("VMSnapshotContent %s holds no VirtualMachine", key)
	}
	s.snapshot, s.content = snapshot, content
	return nil
}

// checkTarget refuses what must not, or cannot, be restored into.
func (r *Reconciler) checkTarget(_ context.Context, s *scope) error {
	if s.restored() {
		return nil
	}
	source := s.snapshot.Status.SourceUID
	switch {
	case s.vm == nil:
		return whole(s.snapshot, s.content)
	case source == nil || s.vm.UID != *source:
		return fail(otherTarget)
	case s.vm.DeletionTimestamp != nil:
		return fail("VirtualMachine %s is being deleted", s.vm.Name)
	case rename.Target(s.vm) != "":
		return fail("VirtualMachine %s is being renamed to %s", s.vm.Name, rename.Target(s.vm))
	case inPlace(s.restore) && volumemigration.Pending(s.vm):
		return fail("volumes of VirtualMachine %s are being copied to other claims; wait until that is done, or restore to other names by another volumeRestorePolicy", s.vm.Name)
	case len(s.restore.Spec.Patches) > 0:
		return fail("spec.patches are of a VM that the restore makes, and VirtualMachine %s exists; restore without them, or name another target", s.vm.Name)
	case s.vm.Status.SnapshotInProgress != nil:
		return fail("vm snapshot %s in progress", *s.vm.Status.SnapshotInProgress)
	case s.vm.Status.RestoreInProgress != nil && !s.locked():
		return fail("vm restore %s in progress", *s.vm.Status.RestoreInProgress)
	}
	return nil
}

// whole refuses to make a second VM of a content that lacks disks: it would write to those of the first. One that lacks the state of
// the VM's TPM makes a guest that may not get at its own disks.
func whole(snapshot *snapshotv1.VirtualMachineSnapshot, content *snapshotv1.VirtualMachineSnapshotContent) error {
	if virtualmachinesnapshot.LeavesState(snapshot, content) {
		return fail("the state of the VM's TPM or firmware is not in the snapshot, for its storage takes none: a new VM would not have it; restore to the same VM, which keeps it as it is")
	}
	for _, volume := range content.Spec.Source.VirtualMachine.Spec.Template.Spec.Volumes {
		claim := virtualmachinesnapshot.ClaimOf(&volume)
		if claim != "" && volume.MemoryDump == nil && backupOf(content, volume.Name) == nil {
			return fail("volume %s is not in the snapshot, whose VM has it on claim %s: a new VM cannot be made from some of the disks; restore to the same VM, which keeps that claim",
				volume.Name, claim)
		}
	}
	return nil
}

// stopTarget waits until the VM does not run, or stops it, as the restore says.
func (r *Reconciler) stopTarget(ctx context.Context, s *scope) error {
	if s.vmi == nil || s.restored() {
		return nil
	}
	s.waiting, s.progress = waitingForTarget, waitingForTarget
	switch s.policy() {
	case snapshotv1.VirtualMachineRestoreStopTarget:
		if s.vm != nil && s.vmi.DeletionTimestamp == nil {
			err := r.machines.Stop(ctx, client.ObjectKeyFromObject(s.vm))
			if err != nil && !apierrors.IsConflict(err) { // it stops already
				return fail("%v", err)
			}
		}
	case snapshotv1.VirtualMachineRestoreFailImmediate:
		s.failure = targetNotReady
	case snapshotv1.VirtualMachineRestoreWaitGracePeriodAndFail:
		if s.grace() <= 0 {
			s.failure = graceExceeded
		}
	}
	if s.failure == "" && !waits(s.restore) {
		r.events.Eventf(s.restore, nil, corev1.EventTypeNormal, reasonNotReady, "Reconcile", "Restore target VMI still exists")
	}
	if s.failure != "" {
		if err := r.unlock(ctx, s); err != nil {
			return err
		}
	}
	return steps.ErrDone
}

// waits says whether restore says that it waits for its VM.
func waits(restore *snapshotv1.VirtualMachineRestore) bool {
	for _, c := range status(restore).Conditions {
		if c.Reason == waitingForTarget {
			return true
		}
	}
	return false
}

// lock locks the VM, and looks once more whether it has been started before that.
func (r *Reconciler) lock(ctx context.Context, s *scope) error {
	if s.vm == nil || s.locked() || s.restored() {
		return nil
	}
	if err := r.setLock(ctx, s, &s.restore.Name); err != nil {
		return err
	}
	if err := r.readTarget(ctx, s); err != nil {
		return err
	}
	return r.stopTarget(ctx, s)
}

// unlock unlocks the VM, when it is this restore that locked it. A memory dump is not restored, so a request of one is dropped.
func (r *Reconciler) unlock(ctx context.Context, s *scope) error {
	if !s.locked() {
		return nil
	}
	return ifThere(r.setLock(ctx, s, nil))
}

// setLock writes who restores the VM. Of two that do it at once one fails, and reads again.
func (r *Reconciler) setLock(ctx context.Context, s *scope, by *string) error {
	changed := s.vm.DeepCopy()
	changed.Status.RestoreInProgress = by
	if by == nil && s.restored() {
		changed.Status.MemoryDumpRequest = nil
	}
	patch := client.MergeFromWithOptions(s.vm, client.MergeFromWithOptimisticLock{})
	if err := r.Status().Patch(ctx, changed, patch, client.FieldOwner(names.ManagerController)); err != nil {
		return fmt.Errorf("writing status.restoreInProgress of VirtualMachine %s: %w", client.ObjectKeyFromObject(s.vm), err)
	}
	s.vm = changed
	return nil
}

// ifThere is err, unless that says that the object has gone.
func ifThere(err error) error {
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// change patches what edit changes of object, of the version that was read.
func (r *Reconciler) change(ctx context.Context, object client.Object, edit func()) error {
	before, ok := object.DeepCopyObject().(client.Object)
	if !ok {
		return fmt.Errorf("copying %T %s failed", object, object.GetName())
	}
	edit()
	if equality.Semantic.DeepEqual(before, object) {
		return nil
	}
	patch := client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})
	if err := r.Patch(ctx, object, patch, client.FieldOwner(names.ManagerController)); err != nil {
		return fmt.Errorf("changing %T %s: %w", object, client.ObjectKeyFromObject(object), err)
	}
	return nil
}
