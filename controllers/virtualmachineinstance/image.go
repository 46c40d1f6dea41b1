package virtualmachineinstance

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/fields"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// A start that takes longer than slowStart says what it waits for, and then counts in
// steps of progressStep, so that waiting costs a write in 10 s at most.
const (
	slowStart    = 5 * time.Second
	progressStep = 10 * time.Second
)

// noteSlowStart says that the pod's container waits, for its image or otherwise, when
// it has done so for a while.
func (r *Reconciler) noteSlowStart(ctx context.Context, s *scope, waiting *corev1.ContainerStatus) error {
	waited := s.now.Sub(startedAt(s.pod).Time)
	if waited < slowStart {
		s.requeueAfter(slowStart - waited)
		return nil
	}
	pull, err := r.pullOf(ctx, s.pod, waiting)
	if err != nil {
		return err
	}
	reason, message, next := slowness(waiting, pull, waited, s.now)
	s.setCondition(conditionProvisioning, corev1.ConditionTrue, reason, message)
	s.requeueAfter(next)
	return nil
}

// slowness words a wait: reason and message for the user, and when they change next.
func slowness(waiting *corev1.ContainerStatus, pull *time.Time, waited time.Duration, now time.Time) (string, string, time.Duration) {
	if pull == nil {
		steps := stepsOf(waited)
		return reasonWaiting, fmt.Sprintf("container %s waits since %s: %s", waiting.Name, steps, waiting.State.Waiting.Reason), untilNext(waited)
	}
	since := now.Sub(*pull)
	return reasonPulling, fmt.Sprintf("pulling image %s since %s", waiting.Image, stepsOf(since)), untilNext(since)
}

func stepsOf(d time.Duration) string {
	if d < progressStep {
		return fmt.Sprintf("%.0f s", d.Truncate(slowStart).Seconds())
	}
	return fmt.Sprintf("%.0f s", d.Truncate(progressStep).Seconds())
}

func untilNext(d time.Duration) time.Duration {
	return progressStep - d%progressStep
}

// pullOf returns since when the kubelet pulls the waiting container's image, or nil when
// it does not. The kubelet says so only in events, which are read when a start is slow.
func (r *Reconciler) pullOf(ctx context.Context, pod *corev1.Pod, waiting *corev1.ContainerStatus) (*time.Time, error) {
	list := &corev1.EventList{}
	selector := fields.Set{"involvedObject.uid": string(pod.UID)}.AsSelector()
	if err := r.live.List(ctx, list, client.InNamespace(pod.Namespace), client.MatchingFieldsSelector{Selector: selector}); err != nil {
		return nil, fmt.Errorf("listing the events of pod %s/%s: %w", pod.Namespace, pod.Name, err)
	}
	return pullIn(list.Items, waiting.Name), nil
}

// pullIn finds the start of a pull for container that no later event has ended.
func pullIn(events []corev1.Event, container string) *time.Time {
	var pulling, ended time.Time
	for _, e := range events {
		path := e.InvolvedObject.FieldPath
		if path != "spec.containers{"+container+"}" && path != "spec.initContainers{"+container+"}" {
			continue
		}
		at := timeOf(e)
		switch {
		case e.Reason == "Pulling" && at.After(pulling):
			pulling = at
		case e.Reason != "Pulling" && at.After(ended):
			ended = at
		}
	}
	if pulling.IsZero() || ended.After(pulling) {
		return nil
	}
	return &pulling
}

func timeOf(e corev1.Event) time.Time {
	for _, at := range []time.Time{e.LastTimestamp.Time, e.EventTime.Time, e.FirstTimestamp.Time} {
		if !at.IsZero() {
			return at
		}
	}
	return e.CreationTimestamp.Time
}
