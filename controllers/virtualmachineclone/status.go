package virtualmachineclone

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clonev1 "kubevirt.io/api/clone/v1beta1"

	"github.com/slipway-vm/slipway/internal/apply"
	"github.com/slipway-vm/slipway/internal/names"
)

// writeStatus writes the clone's status when it has changed.
func (r *Reconciler) writeStatus(ctx context.Context, s *scope) error {
	wanted := newStatus(s)
	if equality.Semantic.DeepEqual(wanted, s.clone.Status) {
		return nil
	}
	err := apply.Status(ctx, r.Client, s.clone, names.ManagerController, wanted)
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// newStatus computes the clone's status from what the pass knows.
func newStatus(s *scope) clonev1.VirtualMachineCloneStatus {
	old := &s.clone.Status
	wanted := clonev1.VirtualMachineCloneStatus{
		Phase: phase(s), CreationTime: old.CreationTime, SnapshotName: old.SnapshotName, RestoreName: old.RestoreName, TargetName: old.TargetName,
	}
	if ofMachine(s.clone) && s.snapshot != nil && !ended(s.clone) {
		wanted.SnapshotName = new(s.snapshot.Name)
	}
	if s.restore != nil && !ended(s.clone) { // of one that has ended they may be there for a moment still
		wanted.RestoreName, wanted.TargetName = new(s.restore.Name), new(s.restore.Spec.Target.Name)
	}
	if s.done {
		wanted.TargetName = new(targetName(s.clone))
		if s.target != nil {
			wanted.CreationTime = new(s.target.CreationTimestamp)
		}
	}
	if s.cleared {
		wanted.SnapshotName, wanted.RestoreName = nil, nil
	}
	wanted.Conditions = conditions(s, wanted.Phase)
	return wanted
}

// phase is how far the clone is: as far as what was made for it, which may be more than was written down. A clone that waits for its source
// has no phase.
func phase(s *scope) clonev1.VirtualMachineClonePhase {
	switch {
	case ended(s.clone):
		return s.clone.Status.Phase
	case s.obstacle != nil && s.obstacle.final:
		return clonev1.Failed
	case s.done:
		return clonev1.Succeeded
	case s.made():
		return clonev1.CreatingTargetVM
	case s.restore != nil, s.content != nil:
		return clonev1.RestoreInProgress
	case s.snapshot != nil:
		return clonev1.SnapshotInProgress
	}
	return s.clone.Status.Phase
}

// conditions are those of the phase. Those of a clone that has ended stay as they are.
func conditions(s *scope, phase clonev1.VirtualMachineClonePhase) []clonev1.Condition {
	if ended(s.clone) {
		return s.clone.Status.Conditions
	}
	progressing := clonev1.Condition{Type: clonev1.ConditionProgressing, Status: corev1.ConditionTrue, Reason: processing, Message: s.waits}
	isReady := clonev1.Condition{Type: clonev1.ConditionReady, Status: corev1.ConditionFalse, Reason: processing}
	switch {
	case phase == clonev1.Succeeded:
		progressing.Status, progressing.Reason = corev1.ConditionFalse, ready
		isReady.Status, isReady.Reason = corev1.ConditionTrue, ready
	case s.obstacle != nil && s.obstacle.final:
		progressing.Status, progressing.Reason, isReady.Reason = corev1.ConditionFalse, failed, s.obstacle.message
	case s.obstacle != nil:
		progressing.Status, progressing.Reason, isReady.Reason = corev1.ConditionFalse, pending, s.obstacle.message
	}
	all := []clonev1.Condition{progressing, isReady}
	for i := range all {
		all[i].LastTransitionTime = metav1.NewTime(s.now).Rfc3339Copy()
		for _, before := range s.clone.Status.Conditions {
			if before.Type == all[i].Type && before.Status == all[i].Status {
				all[i].LastTransitionTime = before.LastTransitionTime
			}
		}
	}
	return all
}
