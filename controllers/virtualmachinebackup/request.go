package virtualmachinebackup

import (
	"context"
	"fmt"

	backupv1 "kubevirt.io/api/backup/v1alpha1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/slipway-vm/slipway/internal/apply"
	"github.com/slipway-vm/slipway/internal/backup"
	"github.com/slipway-vm/slipway/internal/names"
	"github.com/slipway-vm/slipway/internal/steps"
)

// hold keeps the backup from going before what it asks of the VMI does.
func (r *Reconciler) hold(ctx context.Context, s *scope) error {
	if held(s.backup) {
		return nil
	}
	return r.change(ctx, s, func() { controllerutil.AddFinalizer(s.backup, Finalizer) })
}

// change changes the backup's metadata, unless somebody else has meanwhile.
func (r *Reconciler) change(ctx context.Context, s *scope, change func()) error {
	before := s.backup.DeepCopy()
	change()
	patch := client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})
	if err := r.Patch(ctx, s.backup, patch, client.FieldOwner(names.ManagerController)); err != nil {
		return fmt.Errorf("changing the finalizers of VirtualMachineBackup %s: %w", client.ObjectKeyFromObject(before), err)
	}
	return nil
}

// request asks the VMI for the backup.
func (r *Reconciler) request(ctx context.Context, s *scope) error {
	if s.ours() {
		return nil
	}
	request := requestOf(s.backup, s.tracker)
	if err := request.Validate(s.machine); err != nil {
		return fail(backupv1.ReasonFailed, "%s", err.Error())
	}
	if err := r.annotate(ctx, s, request); err != nil {
		return err
	}
	s.asked = request
	return nil
}

// requestOf is what the VMI is asked for.
func requestOf(b *backupv1.VirtualMachineBackup, tracker *backupv1.VirtualMachineBackupTracker) *backup.Request {
	request := &backup.Request{
		Name: b.Name, UID: b.UID, Created: b.CreationTimestamp.UTC(), Claim: claimOf(b), SkipQuiesce: b.Spec.SkipQuiesce,
	}
	if tracker == nil {
		return request
	}
	request.Tracker = tracker.UID
	if !b.Spec.ForceFullBackup && tracker.Status != nil && tracker.Status.LatestCheckpoint != nil {
		request.Base = tracker.Status.LatestCheckpoint.Name
	}
	return request
}

// annotate writes what the VMI is asked for, nil for nothing more, unless somebody else has changed it meanwhile.
func (r *Reconciler) annotate(ctx context.Context, s *scope, request *backup.Request) error {
	changed := s.vmi.DeepCopy()
	delete(changed.Annotations, backup.AnnotationRequest)
	if request != nil {
		text, err := request.Encode()
		if err != nil {
			return err
		}
		if changed.Annotations == nil {
			changed.Annotations = map[string]string{}
		}
		changed.Annotations[backup.AnnotationRequest] = text
	}
	patch := client.MergeFromWithOptions(s.vmi, client.MergeFromWithOptimisticLock{})
	if err := r.Patch(ctx, changed, patch, client.FieldOwner(names.ManagerController)); err != nil {
		return fmt.Errorf("asking VirtualMachineInstance %s/%s for a backup: %w", s.vmi.Namespace, s.vmi.Name, err)
	}
	s.vmi = changed
	return nil
}

// follow takes in what the node tells of the backup.
func (r *Reconciler) follow(_ context.Context, s *scope) error {
	target := volumeStatus(s.vmi, s.asked.Volume())
	told := backup.StatusOf(s.vmi)
	if target == nil || told == nil { // what is told is of an earlier backup, or nothing is
		return steps.ErrDone
	}
	s.target, s.told = target, told
	switch {
	case told.Completed && told.Failed:
		message := "unknown, no completion message"
		if told.BackupMsg != nil {
			message = *told.BackupMsg
		}
		return fail(backupv1.ReasonFailed, "%s", message)
	case !told.Completed:
		return steps.ErrDone
	}
	return nil
}

// keepCheckpoint has the tracker know the checkpoint from which its next backup goes on.
func (r *Reconciler) keepCheckpoint(ctx context.Context, s *scope) error {
	if s.tracker != nil && s.asked.Tracker == s.tracker.UID && s.told.CheckpointName != nil {
		status := backupv1.VirtualMachineBackupTrackerStatus{LatestCheckpoint: &backupv1.BackupCheckpoint{
			Name: *s.told.CheckpointName, CreationTime: s.told.StartTimestamp, Volumes: s.told.Volumes,
		}}
		if err := apply.Status(ctx, r.Client, s.tracker, names.ManagerController, status); client.IgnoreNotFound(err) != nil {
			return err
		}
	}
	s.done = true
	return nil
}

// release takes from the VMI what it is asked for; virt-handler ends then what goes on.
func (r *Reconciler) release(ctx context.Context, s *scope) error {
	if s.vmi == nil || !s.ours() {
		return nil
	}
	return r.annotate(ctx, s, nil)
}

// letGo lets the backup go once the node has let go of the claim.
func (r *Reconciler) letGo(ctx context.Context, s *scope) error {
	if !held(s.backup) {
		s.gone = s.backup.DeletionTimestamp != nil
		return nil
	}
	volume := (&backup.Request{UID: s.backup.UID}).Volume()
	if s.vmi != nil && !s.vmi.IsFinal() && volumeStatus(s.vmi, volume) != nil {
		return nil
	}
	s.gone = s.backup.DeletionTimestamp != nil
	return r.change(ctx, s, func() { controllerutil.RemoveFinalizer(s.backup, Finalizer) })
}
