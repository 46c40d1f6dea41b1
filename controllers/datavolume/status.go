package datavolume

import (
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"

	"github.com/slipway-vm/slipway/internal/population"
	"github.com/slipway-vm/slipway/internal/transfer"
)

// newStatus computes a DataVolume's status from what a pass has found.
func newStatus(s *scope, now time.Time) cdiv1.DataVolumeStatus {
	status := cdiv1.DataVolumeStatus{Phase: phase(s), Progress: progressOf(s), RestartCount: s.restarts()}
	if s.ours() {
		status.ClaimName = s.claim.Name
	}
	running := runningCondition(s)
	status.Conditions = []cdiv1.DataVolumeCondition{boundCondition(s), readyCondition(status.Phase, running), running}
	stamp(status.Conditions, s.dv.Status.Conditions, metav1.NewTime(now))
	return status
}

func phase(s *scope) cdiv1.DataVolumePhase {
	switch {
	case s.failed != nil:
		return cdiv1.Failed
	case s.done():
		return cdiv1.Succeeded
	case s.elsewhere():
		return cloningPhase(s)
	case s.waiting != nil || s.claim == nil:
		return cdiv1.Pending
	case s.claim.Status.Phase == corev1.ClaimLost:
		return cdiv1.Failed
	case s.waitsForConsumer() && population.Chosen(s.claim) && !population.InPlace(s.claim):
		return cdiv1.PendingPopulation // whoever is its consumer does not start before it is whole
	case s.waitsForConsumer():
		return cdiv1.WaitForFirstConsumer
	case s.plan.clones():
		return cloningPhase(s)
	case s.plan.kind == kindExternal:
		return cdiv1.Pending
	case s.pod != nil && s.plan.kind == kindUpload:
		return uploadPhase(s)
	}
	return importPhase(s)
}

// importPhase is the phase of a claim that a pod fills.
func importPhase(s *scope) cdiv1.DataVolumePhase {
	switch {
	case s.pod == nil && s.claim.Status.Phase == corev1.ClaimBound:
		return cdiv1.PVCBound
	case s.pod == nil:
		return cdiv1.Pending
	case s.pod.Status.Phase == corev1.PodRunning || s.last != nil:
		return cdiv1.ImportInProgress
	}
	return cdiv1.ImportScheduled
}

// elsewhere reports whether a clone is under way before the DataVolume has its claim, or something keeps it from going on.
func (s *scope) elsewhere() bool {
	return s.cloning != nil || s.plan.kind == kindCopy && s.claim == nil && s.waiting == nil
}

// cloningPhase is the phase in which a pod copies a claim, or a driver clones it, takes a snapshot of it or restores one.
func cloningPhase(s *scope) cdiv1.DataVolumePhase {
	switch {
	case s.rebinds():
		return cdiv1.RebindInProgress
	case s.plan.kind == kindCopy && s.pod != nil && (s.pod.Status.Phase == corev1.PodRunning || s.last != nil):
		return cdiv1.CloneInProgress
	case s.plan.kind == kindCopy:
		return cdiv1.CloneScheduled
	case s.copied || s.claim != nil && isCopy(s.claim): // it is brought
		return cdiv1.CloneInProgress
	case s.taking:
		return cdiv1.SnapshotForSmartCloneInProgress
	case s.restores():
		return cdiv1.CloneFromSnapshotSourceInProgress
	}
	return cdiv1.CSICloneInProgress
}

// rebinds reports whether the clone is made, in its source's namespace, and its volume is on its way to the DataVolume's claim.
func (s *scope) rebinds() bool {
	if s.claim == nil {
		return s.way.volume != nil
	}
	return s.claim.Annotations[annotationBroughtFrom] != "" && s.claim.Status.Phase != corev1.ClaimBound
}

func progressOf(s *scope) cdiv1.DataVolumeProgress {
	switch {
	case s.done():
		return progressDone
	case s.populated():
		return cdiv1.DataVolumeProgress(s.claim.Annotations[population.AnnotationProgress])
	case s.progress.Total > 0:
		return cdiv1.DataVolumeProgress(s.progress.Percent())
	case s.dv.Status.Progress != "" && s.pod != nil && s.plan.kind != kindUpload: // which may begin anew
		return s.dv.Status.Progress
	}
	return progressUnknown
}

func boundCondition(s *scope) cdiv1.DataVolumeCondition {
	c := cdiv1.DataVolumeCondition{Type: cdiv1.DataVolumeBound, Status: corev1.ConditionFalse}
	switch {
	case s.waiting != nil:
		c.Reason, c.Message = s.waiting.reason, s.waiting.message
	case s.claim == nil:
		c.Reason, c.Message = reasonNotFound, "No PVC found"
	case s.claim.Status.Phase == corev1.ClaimBound:
		c.Status, c.Reason, c.Message = corev1.ConditionTrue, reasonBound, fmt.Sprintf("PVC %s Bound", s.claim.Name)
	case s.claim.Status.Phase == corev1.ClaimLost:
		c.Reason, c.Message = reasonClaimLost, "Claim Lost"
	default:
		c.Reason, c.Message = reasonPending, fmt.Sprintf("PVC %s Pending", s.claim.Name)
		if name := s.claim.Spec.StorageClassName; s.class == nil && name != nil && *name != "" {
			c.Message += fmt.Sprintf(": storage class %s does not exist", *name)
		} else if s.class == nil && name == nil {
			c.Message += ": it names no storage class and the cluster has no default one"
		}
		if s.missed != "" {
			c.Message += fmt.Sprintf(": %s, from which it is to be made, is gone; delete the DataVolume and create it again", s.missed)
		}
	}
	return c
}

func readyCondition(phase cdiv1.DataVolumePhase, running cdiv1.DataVolumeCondition) cdiv1.DataVolumeCondition {
	c := cdiv1.DataVolumeCondition{Type: cdiv1.DataVolumeReady, Status: corev1.ConditionFalse}
	switch {
	case phase == cdiv1.Succeeded:
		c.Status = corev1.ConditionTrue
	case phase == cdiv1.Failed:
		c.Reason = reasonError
	case running.Status == corev1.ConditionTrue:
		c.Reason = reasonTransferRunning
	}
	return c
}

// runningCondition says whether data flows, and if not, what it waits for.
func runningCondition(s *scope) cdiv1.DataVolumeCondition {
	c := cdiv1.DataVolumeCondition{Type: cdiv1.DataVolumeRunning, Status: corev1.ConditionFalse}
	switch {
	case s.failed != nil:
		c.Reason, c.Message = s.failed.reason, s.failed.message
	case s.done() && s.plan.clones():
		c.Reason, c.Message = reasonCompleted, "Clone Complete"
	case s.done() && s.plan.kind == kindUpload:
		c.Reason, c.Message = reasonCompleted, "Upload Complete"
	case s.done():
		c.Reason, c.Message = reasonCompleted, "Import Complete"
	case s.cloning != nil:
		c.Reason, c.Message = s.cloning.reason, s.cloning.message
	case s.waiting != nil:
		c.Reason, c.Message = s.waiting.reason, s.waiting.message
	case s.plan.kind == kindExternal && s.claim != nil && population.Source(s.claim) != "":
		notes := s.claim.Annotations
		c.Reason, c.Message = notes[annotationRunningReason], notes[AnnotationFailure]
		if notes[annotationRunning] == valueTrue {
			c.Status = corev1.ConditionTrue
		}
	case s.pod != nil:
		podCondition(s, &c)
	}
	return c
}

func podCondition(s *scope, c *cdiv1.DataVolumeCondition) {
	for _, condition := range s.pod.Status.Conditions {
		if condition.Type == corev1.PodScheduled && condition.Status == corev1.ConditionFalse {
			c.Reason, c.Message = reasonUnschedulable, fmt.Sprintf("Pod %s cannot be scheduled: %s", s.pod.Name, condition.Message)
			return
		}
	}
	if programCondition(s, c) {
		return
	}
	if len(s.pod.Status.ContainerStatuses) == 0 {
		c.Reason = reasonCreating
		return
	}
	state := s.pod.Status.ContainerStatuses[0].State
	switch {
	case state.Running != nil && s.progress.Reason != "": // an upload server waits for another
		c.Reason = reasonError
		c.Message = failureText(transfer.Result{Reason: s.progress.Reason, Message: s.progress.Message}) + "; it is of no use, and another one is taken"
	case state.Running != nil:
		c.Status, c.Reason = corev1.ConditionTrue, reasonPodRunning
	case s.last != nil && s.last.Reason != "":
		c.Reason, c.Message = reasonError, failureText(*s.last)+"; it is tried again"
	case state.Waiting != nil:
		c.Reason, c.Message = state.Waiting.Reason, state.Waiting.Message
	}
}

// stamp sets the times of conditions: a condition that says the same as before keeps them.
func stamp(conditions, before []cdiv1.DataVolumeCondition, now metav1.Time) {
	for n := range conditions {
		c := &conditions[n]
		c.LastTransitionTime, c.LastHeartbeatTime = now, now
		old := condition(before, c.Type)
		if old == nil {
			continue
		}
		if old.Status == c.Status {
			c.LastTransitionTime = old.LastTransitionTime
			if old.Reason == c.Reason && old.Message == c.Message {
				c.LastHeartbeatTime = old.LastHeartbeatTime
			}
		}
	}
}

func condition(conditions []cdiv1.DataVolumeCondition, kind cdiv1.DataVolumeConditionType) *cdiv1.DataVolumeCondition {
	for n := range conditions {
		if conditions[n].Type == kind {
			return &conditions[n]
		}
	}
	return nil
}

// equalStatus compares what is written, in whatever order the conditions stand.
func equalStatus(a, b cdiv1.DataVolumeStatus) bool {
	if !equalConditions(a.Conditions, b.Conditions) {
		return false
	}
	a.Conditions, b.Conditions = nil, nil
	return equality.Semantic.DeepEqual(a, b)
}

func equalConditions(a, b []cdiv1.DataVolumeCondition) bool {
	if len(a) != len(b) {
		return false
	}
	for n := range a {
		old := condition(b, a[n].Type)
		if old == nil || old.Status != a[n].Status || old.Reason != a[n].Reason || old.Message != a[n].Message {
			return false
		}
	}
	return true
}
