package objecttransfer

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-vm/slipway/internal/apply"
	"github.com/slipway-vm/slipway/internal/names"
)

// writeStatus writes the status when it has changed, of the transfer as it was read, and tells of it by events.
func (r *Reconciler) writeStatus(ctx context.Context, s *scope) error {
	wanted, err := newStatus(s, r.now())
	if err != nil || equality.Semantic.DeepEqual(wanted, s.ot.Status) {
		return err
	}
	if err := apply.StatusAsRead(ctx, r.Client, s.ot, names.ManagerData, wanted); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("writing what ObjectTransfer %s has reached: %w", s.ot.Name, err)
	}
	r.tell(s, wanted)
	return nil
}

// newStatus computes the status from what the pass has found.
func newStatus(s *scope, now time.Time) (cdiv1.ObjectTransferStatus, error) {
	old := &s.ot.Status
	status := cdiv1.ObjectTransferStatus{Phase: phase(s), Data: old.Data}
	switch {
	case s.done:
		status.Data = nil
	case s.begun:
		var err error
		if status.Data, err = s.rec.data(); err != nil {
			return status, err
		}
	}
	if len(old.Conditions) > 0 && ended(s.ot) {
		status.Conditions = old.Conditions
		return status, nil
	}
	complete := condition(s, status.Phase)
	complete.LastTransitionTime = metav1.NewTime(now).Rfc3339Copy()
	complete.LastHeartbeatTime = complete.LastTransitionTime
	for _, before := range old.Conditions {
		if before.Status == complete.Status && before.Message == complete.Message && before.Reason == complete.Reason {
			complete.LastTransitionTime, complete.LastHeartbeatTime = before.LastTransitionTime, before.LastHeartbeatTime
		}
	}
	status.Conditions = []cdiv1.ObjectTransferCondition{complete}
	return status, nil
}

func phase(s *scope) cdiv1.ObjectTransferPhase {
	switch {
	case ended(s.ot):
		return s.ot.Status.Phase
	case s.done:
		return cdiv1.ObjectTransferComplete
	case s.obstacle != nil && s.obstacle.final:
		return cdiv1.ObjectTransferError
	case s.begun, s.ot.Status.Phase == cdiv1.ObjectTransferRunning:
		return cdiv1.ObjectTransferRunning
	}
	return cdiv1.ObjectTransferPending
}

// condition is Complete, the only one that there is, without its times. As in the field its message says what, and its
// reason, a sentence, more.
func condition(s *scope, phase cdiv1.ObjectTransferPhase) cdiv1.ObjectTransferCondition {
	complete := cdiv1.ObjectTransferCondition{Type: cdiv1.ObjectTransferConditionComplete, Status: corev1.ConditionFalse}
	switch {
	case s.done:
		complete.Status, complete.Message = corev1.ConditionTrue, sayComplete
	case s.obstacle != nil:
		complete.Message, complete.Reason = s.obstacle.message, s.obstacle.reason
	case s.failure != nil:
		complete.Message, complete.Reason = sayError, s.failure.Error()
	case phase == cdiv1.ObjectTransferRunning:
		complete.Message = sayRunning
	case s.ot.Status.Phase == cdiv1.ObjectTransferEmpty:
		complete.Message = sayInitializing
	default:
		complete.Message = sayPending
	}
	return complete
}

// tell emits the events of what is new in status.
func (r *Reconciler) tell(s *scope, status cdiv1.ObjectTransferStatus) {
	old, complete := &s.ot.Status, status.Conditions[0]
	switch {
	case status.Phase == cdiv1.ObjectTransferError && old.Phase != status.Phase:
		r.events.Eventf(s.ot, nil, corev1.EventTypeWarning, "Error", eventAction, "%s: %s", complete.Message, complete.Reason)
	case status.Phase == cdiv1.ObjectTransferRunning && old.Phase != status.Phase:
		r.events.Eventf(s.ot, nil, corev1.EventTypeNormal, "Running", eventAction, "Moving %s %s to %s", s.ot.Spec.Source.Kind, sourceOf(s.ot), targetOf(s.ot))
	case status.Phase == cdiv1.ObjectTransferComplete && old.Phase != status.Phase:
		r.events.Eventf(s.ot, nil, corev1.EventTypeNormal, "Complete", eventAction, "Moved %s %s to %s", s.ot.Spec.Source.Kind, sourceOf(s.ot), targetOf(s.ot))
	case s.obstacle != nil && s.obstacle.warn && (len(old.Conditions) == 0 || old.Conditions[0].Message != complete.Message):
		r.events.Eventf(s.ot, nil, corev1.EventTypeWarning, "Waiting", eventAction, "%s: %s", complete.Message, complete.Reason)
	}
}
