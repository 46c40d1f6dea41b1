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
	events, err := r.eventsOf(ctx, s.pod)
	if err != nil {
		return err
	}
	if problem := mountProblem(events); problem != "" {
		s.setCondition(conditionSynchronized, corev1.ConditionFalse, ReasonFailedMount, problem+"; the start goes on once that is mended")
		s.dropCondition(conditionProvisioning)
		s.requeueAfter(untilNext(waited))
		return nil
	}
	reason, message, next := slowness(waiting, pullIn(events, waiting.Name), waited, s.now)
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

// eventsOf are the events of pod. What the kubelet waits for it says only in these, which
// are read when a start is slow.
func (r *Reconciler) eventsOf(ctx context.Context, pod *corev1.Pod) ([]corev1.Event, error) {
	list := &corev1.EventList{}
	selector := fields.Set{"involvedObject.uid": string(pod.UID)}.AsSelector()
	if err := r.live.List(ctx, list, client.InNamespace(pod.Namespace), client.MatchingFieldsSelector{Selector: selector}); err != nil {
		return nil, fmt.Errorf("listing the events of pod %s/%s: %w", pod.Namespace, pod.Name, err)
	}
	return list.Items, nil
}

// mountProblem is why the kubelet cannot mount a volume of the pod, such as a ConfigMap
// that does not exist; empty once it went on to containers.
func mountProblem(events []corev1.Event) string {
	var failed, later time.Time
	message := ""
	for _, e := range events {
		at := timeOf(e)
		switch {
		case e.Reason == ReasonFailedMount && at.After(failed):
			failed, message = at, e.Message
		case e.InvolvedObject.FieldPath != "" && at.After(later):
			later = at
		}
	}
	if later.After(failed) {
		return ""
	}
	return message
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
