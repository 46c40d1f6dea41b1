package dataimportcron

import (
	"errors"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	"sigs.k8s.io/yaml"

	"github.com/slipway-vm/slipway/controllers/cdiconfig"
	"github.com/slipway-vm/slipway/tests/fixture"
)

func TestThePodThatAsksForAnImage(t *testing.T) {
	cron := &cdiv1.DataImportCron{ObjectMeta: metav1.ObjectMeta{Namespace: "images", Name: "debian", UID: "0000-cron"}}
	cron.Spec.Template.Spec.Source = &cdiv1.DataVolumeSource{Registry: &cdiv1.DataVolumeSourceRegistry{
		URL: new("docker://registry.example.com/disks/debian:12"), PullMethod: new(cdiv1.RegistryPullNode), SecretRef: new("login"),
		Platform: &cdiv1.PlatformOptions{Architecture: "arm64"},
	}}
	cron.Spec.Template.Spec.ServiceAccountName, cron.Spec.Template.Spec.PriorityClassName = "puller", "soon"
	got, err := yaml.Marshal(pollPod(cron, "registry.local/slipway:test", cdiconfig.Workload{}))
	if err != nil {
		t.Fatal(err)
	}
	fixture.Golden(t, "testdata/poll-pod.yaml", got)
	long := strings.Repeat("a", 63)
	if name := pollName(long); len(name) > 63 || name == pollName(long[1:]) {
		t.Errorf("%q is too long or not unique", name)
	}
}

func TestWhatTheKubeletSaysOfAnImage(t *testing.T) {
	const digest = "sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
	waiting := func(reason, message string) corev1.ContainerState {
		return corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason, Message: message}}
	}
	ended := func(code int32, message string) corev1.ContainerState {
		return corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: code, Message: message}}
	}
	states := func(program, poll corev1.ContainerState, id string) corev1.PodStatus {
		return corev1.PodStatus{
			InitContainerStatuses: []corev1.ContainerStatus{{Name: "program", State: program, ImageID: "registry.local/slipway@" + digest}},
			ContainerStatuses:     []corev1.ContainerStatus{{Name: containerPoll, State: poll, ImageID: id}},
		}
	}
	for name, c := range map[string]struct {
		status corev1.PodStatus
		age    time.Duration
		want   string // a digest, or words of the failure; empty while there is no answer
	}{
		"nothing yet":              {corev1.PodStatus{}, time.Minute, ""},
		"a program that comes":     {states(waiting("PodInitializing", ""), waiting("PodInitializing", ""), ""), time.Minute, ""},
		"an image that comes":      {states(ended(0, ""), waiting("ContainerCreating", ""), ""), 29 * time.Minute, ""},
		"an image that never came": {states(ended(0, ""), waiting("ContainerCreating", ""), ""), 30 * time.Minute, "within 30m0s: ContainerCreating"},
		"no node": {corev1.PodStatus{Conditions: []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Message: "0/3 nodes"}}},
			time.Hour, "0/3 nodes"},
		"an image that runs":        {states(ended(0, ""), corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}, "registry.example.com/disks/debian@"+digest), time.Minute, digest},
		"an image that ran":         {states(ended(0, ""), ended(0, ""), "docker-pullable://registry.example.com/disks/debian@"+digest), time.Hour, digest},
		"an image loaded by hand":   {states(ended(0, ""), ended(0, ""), digest), time.Minute, "loaded by hand"},
		"an image of another hash":  {states(ended(0, ""), ended(0, ""), "a@sha512:00"), time.Minute, "loaded by hand"},
		"an image that is not had":  {states(ended(0, ""), waiting("ImagePullBackOff", "back-off: unauthorized"), ""), time.Minute, "ImagePullBackOff: back-off: unauthorized"},
		"a program that is not had": {states(waiting("ErrImagePull", "no route"), waiting("PodInitializing", ""), ""), time.Minute, "ErrImagePull: no route"},
		"a program that fails":      {states(ended(1, "no space\n"), waiting("PodInitializing", ""), ""), time.Minute, "container program of pod p ended with code 1: no space"},
		"a pod whose time is over": {corev1.PodStatus{Phase: corev1.PodFailed, Reason: "DeadlineExceeded", Message: "Pod was active on the node longer than the specified deadline"},
			31 * time.Minute, "pod p failed: DeadlineExceeded Pod was active"},
		"a pod that was put out": {corev1.PodStatus{Phase: corev1.PodFailed, Reason: "Evicted", Message: "disk pressure"}, time.Minute, "pod p failed: Evicted disk pressure"},
	} {
		now := time.Now()
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p", CreationTimestamp: metav1.NewTime(now.Add(-c.age))}, Status: c.status}
		got, err := answered(pod, now)
		wantAnswer(t, name, c.want, got, err)
	}
}

// wantAnswer checks what a pod has told: a digest, words of a failure, or nothing yet where want is empty.
func wantAnswer(t *testing.T, name, want, got string, err error) {
	t.Helper()
	switch {
	case want == "":
		if !errors.Is(err, errAsking) {
			t.Errorf("%s: %q, %v; want no answer", name, got, err)
		}
	case strings.HasPrefix(want, digestPrefix):
		if err != nil || got != want {
			t.Errorf("%s: %q, %v", name, got, err)
		}
	case err == nil || errors.Is(err, errAsking) || !strings.Contains(err.Error(), want):
		t.Errorf("%s: %q, %v; want %q", name, got, err, want)
	}
}
