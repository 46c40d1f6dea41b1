package virtualmachineinstance

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

var noon = time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)

func event(reason, path string, at time.Duration) corev1.Event {
	return corev1.Event{Reason: reason, LastTimestamp: metav1.NewTime(noon.Add(at)), InvolvedObject: corev1.ObjectReference{FieldPath: path}}
}

func TestPullIn(t *testing.T) {
	const mine, other = "spec.initContainers{volumeroot}", "spec.containers{compute}"
	for name, c := range map[string]struct {
		events []corev1.Event
		want   time.Duration
		none   bool
	}{
		"no events":                  {nil, 0, true},
		"a pull in progress":         {[]corev1.Event{event("Pulling", mine, 3*time.Second)}, 3 * time.Second, false},
		"a pull that ended":          {[]corev1.Event{event("Pulling", mine, 3*time.Second), event("Pulled", mine, 5*time.Second)}, 0, true},
		"a second try":               {[]corev1.Event{event("Pulling", mine, 0), event("Failed", mine, time.Second), event("Pulling", mine, 9*time.Second)}, 9 * time.Second, false},
		"another container's pull":   {[]corev1.Event{event("Pulling", other, 0)}, 0, true},
		"another container's result": {[]corev1.Event{event("Pulling", mine, 0), event("Pulled", other, time.Second)}, 0, false},
	} {
		t.Run(name, func(t *testing.T) {
			got := pullIn(c.events, "volumeroot")
			if c.none != (got == nil) {
				t.Fatalf("got %v", got)
			}
			if got != nil && !got.Equal(noon.Add(c.want)) {
				t.Errorf("since %s, want %s", got, noon.Add(c.want))
			}
		})
	}
}

func TestMountProblem(t *testing.T) {
	const compute = "spec.containers{compute}"
	failed := event(ReasonFailedMount, "", 2*time.Second)
	failed.Message = `configmap "answers" not found`
	older := event(ReasonFailedMount, "", time.Second)
	older.Message = "something else"
	for name, c := range map[string]struct {
		events []corev1.Event
		want   string
	}{
		"no events":             {nil, ""},
		"a normal start":        {[]corev1.Event{event("Scheduled", "", 0), event("Pulling", compute, 3*time.Second)}, ""},
		"what was missing last": {[]corev1.Event{failed, older, event("Scheduled", "", 3*time.Second)}, failed.Message},
		"what came at last":     {[]corev1.Event{failed, event("Pulled", compute, 3*time.Second)}, ""},
	} {
		if got := mountProblem(c.events); got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

func TestSlownessCountsInSteps(t *testing.T) {
	waiting := &corev1.ContainerStatus{Name: "compute", Image: "img", State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "PodInitializing"}}}
	for since, want := range map[time.Duration]struct {
		message string
		next    time.Duration
	}{
		7 * time.Second:  {"pulling image img since 5 s", 3 * time.Second},
		12 * time.Second: {"pulling image img since 10 s", 8 * time.Second},
		95 * time.Second: {"pulling image img since 90 s", 5 * time.Second},
	} {
		start := noon.Add(-since)
		reason, message, next := slowness(waiting, &start, since, noon)
		if reason != reasonPulling || message != want.message || next != want.next {
			t.Errorf("after %s: %s, %q, again in %s", since, reason, message, next)
		}
	}
	if reason, message, _ := slowness(waiting, nil, 12*time.Second, noon); reason != reasonWaiting || message != "container compute waits since 10 s: PodInitializing" {
		t.Errorf("without a pull: %s, %q", reason, message)
	}
}
