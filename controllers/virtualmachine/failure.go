package virtualmachine

import (
	"context"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	virtv1 "kubevirt.io/api/core/v1"
)

// A VM whose VMI fails is started again after failureDelay, then four times that, nine
// times, and so on up to failureLimit. A VMI that has run for stableAfter is no failed
// start: it clears the count, and when it crashes later the VM is restarted at once.
const (
	failureDelay = 10 * time.Second
	failureLimit = 5 * time.Minute
	stableAfter  = time.Minute
	// countLimit is more failed starts than a VM sees in a year.
	countLimit = 100_000
)

// noteFailedStart counts failed starts, for the back-off. Stopping a VM clears the count:
// who starts it by hand does not wait.
func (r *Reconciler) noteFailedStart(_ context.Context, s *scope) error {
	if s.strategyError == nil && (!s.wanted() || !s.strategy.startsByItself()) {
		s.startFailure = nil
		return nil
	}
	s.startFailure = nextFailure(s.vm.Status.StartFailure, s.vmi, s.now)
	if s.startFailure == nil || s.vmi == nil || s.vmi.IsFinal() {
		return nil
	}
	if since, running := enteredAt(s.vmi, virtv1.Running); running {
		s.requeueAfter(stableAfter - s.now.Sub(since))
	}
	return nil
}

// nextFailure returns the count after what vmi, which may be nil, shows at now.
func nextFailure(current *virtv1.VirtualMachineStartFailure, vmi *virtv1.VirtualMachineInstance, now time.Time) *virtv1.VirtualMachineStartFailure {
	switch {
	case vmi == nil:
		return current
	case vmi.Status.Phase == virtv1.Succeeded:
		return nil
	case ranFor(vmi, now) >= stableAfter:
		return nil
	case vmi.Status.Phase != virtv1.Failed:
		return current
	case current != nil && current.LastFailedVMIUID == vmi.UID:
		return current
	}
	count := 1
	if current != nil {
		count = current.ConsecutiveFailCount + 1
	}
	retry := metav1.NewTime(now.Add(backoff(count)).Truncate(time.Second))
	return &virtv1.VirtualMachineStartFailure{
		ConsecutiveFailCount: count,
		LastFailedVMIUID:     vmi.UID,
		RetryAfterTimestamp:  &retry,
	}
}

func backoff(count int) time.Duration {
	return min(failureDelay*time.Duration(count*count), failureLimit)
}

// FailingSince is when the first of the starts failed that failure counts, at the latest: the times in between are at least those of the
// back-off. It is false where it counts none.
func FailingSince(failure *virtv1.VirtualMachineStartFailure) (time.Time, bool) {
	if failure == nil || failure.RetryAfterTimestamp == nil || failure.ConsecutiveFailCount <= 0 {
		return time.Time{}, false
	}
	since := failure.RetryAfterTimestamp.Time
	for count := range min(failure.ConsecutiveFailCount, countLimit) {
		since = since.Add(-backoff(count + 1))
	}
	return since, true
}

// ranFor is how long vmi has been, or was, in phase Running.
func ranFor(vmi *virtv1.VirtualMachineInstance, now time.Time) time.Duration {
	since, ran := enteredAt(vmi, virtv1.Running)
	if !ran {
		return 0
	}
	for _, final := range []virtv1.VirtualMachineInstancePhase{virtv1.Failed, virtv1.Succeeded} {
		if end, ended := enteredAt(vmi, final); ended {
			return end.Sub(since)
		}
	}
	return now.Sub(since)
}

func enteredAt(vmi *virtv1.VirtualMachineInstance, phase virtv1.VirtualMachineInstancePhase) (time.Time, bool) {
	for _, t := range vmi.Status.PhaseTransitionTimestamps {
		if t.Phase == phase {
			return t.PhaseTransitionTimestamp.Time, true
		}
	}
	return time.Time{}, false
}

func equalFailure(a, b *virtv1.VirtualMachineStartFailure) bool {
	if a == nil || b == nil {
		return a == b
	}
	return a.ConsecutiveFailCount == b.ConsecutiveFailCount && a.LastFailedVMIUID == b.LastFailedVMIUID
}
