package virtualmachinebackup

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	backupv1 "kubevirt.io/api/backup/v1alpha1"
	virtv1 "kubevirt.io/api/core/v1"

	"github.com/slipway-vm/slipway/internal/apply"
	"github.com/slipway-vm/slipway/internal/backup"
	"github.com/slipway-vm/slipway/internal/names"
)

// What conditions say, in the field's words.
const (
	inProgress = "Backup is in progress"
	aborting   = "Backup is aborting"
	completed  = "Successfully completed VirtualMachineBackup"
	warned     = "Completed VirtualMachineBackup, warning: %s"
	failed     = "Backup has failed: %s"
)

// Reasons of events, in the field's words.
const (
	eventAborting  = "VirtualMachineBackupAborting"
	eventCompleted = "VirtualMachineBackupCompletedSuccessfully"
	eventWarned    = "VirtualMachineBackupCompletedWithWarning"
	eventFailed    = "VirtualMachineBackupFailed"
)

// writeStatus writes the backup's status when it has changed, and tells of it by events.
func (r *Reconciler) writeStatus(ctx context.Context, s *scope) error {
	before := backupv1.VirtualMachineBackupStatus{}
	if s.backup.Status != nil {
		before = *s.backup.Status
	}
	wanted := newStatus(s, before)
	if equality.Semantic.DeepEqual(before, wanted) {
		return nil
	}
	err := apply.Status(ctx, r.Client, s.backup, names.ManagerController, wanted)
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err == nil {
		r.tell(s, before.Conditions, wanted.Conditions)
	}
	return err
}

// newStatus computes the backup's status from what the pass knows; one that is over stays as it is.
func newStatus(s *scope, before backupv1.VirtualMachineBackupStatus) backupv1.VirtualMachineBackupStatus {
	wanted := *before.DeepCopy()
	if over(s.backup) {
		return wanted
	}
	if s.told != nil {
		describe(&wanted, s)
	}
	set := func(kind backupv1.ConditionType, status metav1.ConditionStatus, reason, message string) {
		meta.SetStatusCondition(&wanted.Conditions, metav1.Condition{
			Type: string(kind), Status: status, Reason: reason, Message: message, LastTransitionTime: metav1.NewTime(s.now).Rfc3339Copy(),
		})
	}
	end := func(kind backupv1.ConditionType, reason, message string) {
		set(kind, metav1.ConditionTrue, reason, message)
		set(backupv1.ConditionProgressing, metav1.ConditionFalse, reason, message)
	}
	switch {
	case s.backup.DeletionTimestamp != nil:
		set(backupv1.ConditionProgressing, metav1.ConditionTrue, backupv1.ReasonAborting, aborting)
	case s.obstacle != nil && s.obstacle.reason != "":
		end(backupv1.ConditionFailed, s.obstacle.reason, fmt.Sprintf(failed, s.obstacle.message))
		wanted.CheckpointName = nil // there is none
	case s.obstacle != nil:
		set(backupv1.ConditionProgressing, metav1.ConditionTrue, backupv1.ReasonInitializing, s.obstacle.message)
	case s.done && s.told.BackupMsg != nil:
		end(backupv1.ConditionComplete, backupv1.ReasonCompletedWithWarning, fmt.Sprintf(warned, *s.told.BackupMsg))
	case s.done:
		end(backupv1.ConditionComplete, backupv1.ReasonCompleted, completed)
	case s.ours():
		set(backupv1.ConditionProgressing, metav1.ConditionTrue, backupv1.ReasonInitiated, inProgress)
	}
	return wanted
}

// describe takes over what the node tells.
func describe(wanted *backupv1.VirtualMachineBackupStatus, s *scope) {
	if kind := typeOf(s.target); kind != "" {
		wanted.Type = kind
	}
	if len(s.told.Volumes) > 0 {
		wanted.IncludedVolumes = s.told.Volumes
	}
	if s.told.CheckpointName != nil {
		wanted.CheckpointName = s.told.CheckpointName
	}
	if condition := quiesced(s.told.QuiesceStatus); condition != nil {
		condition.LastTransitionTime = metav1.NewTime(s.now).Rfc3339Copy()
		meta.SetStatusCondition(&wanted.Conditions, *condition)
	}
}

// typeOf is the type of the backup that is written to a volume of which that is said; "" while nobody knows.
func typeOf(target *virtv1.VolumeStatus) backupv1.BackupType {
	switch target.Reason {
	case backup.ReasonFull:
		return backupv1.Full
	case backup.ReasonIncremental:
		return backupv1.Incremental
	}
	return ""
}

// quiesced says in the field's words whether the guest's file systems stood still; nil while nobody knows.
func quiesced(status string) *metav1.Condition {
	condition := &metav1.Condition{Type: string(backupv1.ConditionQuiesced), Status: metav1.ConditionFalse}
	switch backupv1.QuiesceStatus(status) {
	case backupv1.QuiesceSucceeded:
		condition.Status, condition.Reason, condition.Message = metav1.ConditionTrue, backupv1.ReasonQuiesceSucceeded, "Guest filesystem was successfully quiesced"
	case backupv1.QuiesceFailed:
		condition.Reason, condition.Message = backupv1.ReasonQuiesceFailed, "Guest filesystem quiesce failed"
	case backupv1.QuiesceSkipped:
		condition.Reason, condition.Message = backupv1.ReasonQuiesceSkipped, "Guest filesystem quiesce was skipped"
	default:
		return nil
	}
	return condition
}

// tell has events of what conditions say that they did not before.
func (r *Reconciler) tell(s *scope, before, now []metav1.Condition) {
	for _, condition := range now {
		old := meta.FindStatusCondition(before, condition.Type)
		if condition.Status != metav1.ConditionTrue || old != nil && old.Status == condition.Status && old.Reason == condition.Reason {
			continue
		}
		kind, reason := corev1.EventTypeWarning, ""
		switch {
		case condition.Type == string(backupv1.ConditionFailed):
			reason = eventFailed
		case condition.Reason == backupv1.ReasonCompletedWithWarning:
			reason = eventWarned
		case condition.Type == string(backupv1.ConditionComplete):
			kind, reason = corev1.EventTypeNormal, eventCompleted
		case condition.Reason == backupv1.ReasonAborting:
			reason = eventAborting
		default:
			continue
		}
		r.events.Eventf(s.backup, nil, kind, reason, "Reconcile", "%s", condition.Message)
	}
}
