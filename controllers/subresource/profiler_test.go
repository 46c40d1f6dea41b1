package subresource

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	virtv1 "kubevirt.io/api/core/v1"
)

func TestWhichProfilesAreAskedFor(t *testing.T) {
	for name, c := range map[string]struct {
		body string
		want virtv1.ClusterProfilerRequest
		err  string
	}{
		"nothing is sent":       {want: virtv1.ClusterProfilerRequest{PageSize: 10}},
		"nothing is said":       {body: `{"pageSize": 0}`, want: virtv1.ClusterProfilerRequest{PageSize: 10}},
		"a page":                {body: `{"pageSize": 3, "continue": "abc"}`, want: virtv1.ClusterProfilerRequest{PageSize: 3, Continue: "abc"}},
		"a page that is large":  {body: `{"pageSize": 500}`, want: virtv1.ClusterProfilerRequest{PageSize: 20}},
		"one component":         {body: `{"labelSelector": "kubevirt.io=virt-api"}`, want: virtv1.ClusterProfilerRequest{PageSize: 10, LabelSelector: "kubevirt.io=virt-api"}},
		"no JSON":               {body: `pods`, err: "failed to parse cluster profiler request"},
		"no selector":           {body: `{"labelSelector": "=="}`, err: "labelSelector"},
		"more than is read":     {body: `{"continue": "` + strings.Repeat("x", maxProfilerRequest) + `"}`, err: "too large"},
		"a size that is a text": {body: `{"pageSize": "ten"}`, err: "pageSize"},
	} {
		t.Run(name, func(t *testing.T) {
			request := httptest.NewRequest(http.MethodGet, "/", strings.NewReader(c.body))
			got, selector, err := readProfilerRequest(httptest.NewRecorder(), request)
			if c.err != "" {
				if err == nil || !strings.Contains(err.Error(), c.err) || statusOf(err).Code != http.StatusBadRequest {
					t.Errorf("got %v, want %q", err, c.err)
				}
				return
			}
			if err != nil || got != c.want || selector.String() != c.want.LabelSelector {
				t.Errorf("got %+v %q, %v, want %+v", got, selector, err, c.want)
			}
		})
	}
}

func TestPodsThatAreReadyAreAsked(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*corev1.Pod)
		want   bool
	}{
		"ready":             {change: func(*corev1.Pod) {}, want: true},
		"not ready":         {change: func(p *corev1.Pod) { p.Status.Conditions[0].Status = corev1.ConditionFalse }},
		"nothing is known":  {change: func(p *corev1.Pod) { p.Status.Conditions = nil }},
		"begins":            {change: func(p *corev1.Pod) { p.Status.Phase = corev1.PodPending }},
		"has no address":    {change: func(p *corev1.Pod) { p.Status.PodIP = "" }},
		"is being deleted":  {change: func(p *corev1.Pod) { p.DeletionTimestamp = &metav1.Time{Time: time.Now()} }},
		"is over":           {change: func(p *corev1.Pod) { p.Status.Phase = corev1.PodSucceeded }},
		"another condition": {change: func(p *corev1.Pod) { p.Status.Conditions[0].Type = corev1.PodScheduled }},
	} {
		t.Run(name, func(t *testing.T) {
			pod := &corev1.Pod{Status: corev1.PodStatus{
				Phase: corev1.PodRunning, PodIP: "10.0.0.1", Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}},
			}}
			c.change(pod)
			if got := isReady(pod); got != c.want {
				t.Errorf("got %v, want %v", got, c.want)
			}
		})
	}
}

func TestAProfilerIsWhereTheMetricsAre(t *testing.T) {
	pod := &corev1.Pod{Spec: corev1.PodSpec{Containers: []corev1.Container{{}, {Ports: []corev1.ContainerPort{
		{Name: "health", ContainerPort: 8080}, {Name: "metrics", ContainerPort: 8444},
	}}}}}
	if got := metricsPort(pod); got != 8444 {
		t.Errorf("got %d", got)
	}
	if got := metricsPort(&corev1.Pod{}); got != 0 {
		t.Errorf("got %d of a pod without ports", got)
	}
}
