package virtualmachineinstance

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	virtv1 "kubevirt.io/api/core/v1"
)

func ended(name string, code int32, reason string) corev1.ContainerStatus {
	return corev1.ContainerStatus{Name: name, Image: "img", State: corev1.ContainerState{
		Terminated: &corev1.ContainerStateTerminated{ExitCode: code, Reason: reason, Message: "last words"},
	}}
}

func TestEndOf(t *testing.T) {
	failed := func(init, main []corev1.ContainerStatus, reason string) *corev1.Pod {
		return &corev1.Pod{Status: corev1.PodStatus{Phase: corev1.PodFailed, Reason: reason, InitContainerStatuses: init, ContainerStatuses: main}}
	}
	for name, c := range map[string]struct {
		pod    *corev1.Pod
		phase  virtv1.VirtualMachineInstancePhase
		reason string
		words  string
	}{
		"a running pod has not ended":  {&corev1.Pod{Status: corev1.PodStatus{Phase: corev1.PodRunning}}, "", "", ""},
		"a launcher that exits with 0": {&corev1.Pod{Status: corev1.PodStatus{Phase: corev1.PodSucceeded}}, virtv1.Succeeded, "", "powered off"},
		"a launcher that exits with 1": {failed(nil, []corev1.ContainerStatus{ended("compute", 1, "Error")}, ""), virtv1.Failed, reasonPodFailed, "code 1: last words"},
		"out of memory":                {failed(nil, []corev1.ContainerStatus{ended("compute", 137, reasonOOM)}, ""), virtv1.Failed, reasonOOM, "resources.limits.memory"},
		"a disk that cannot be read":   {failed([]corev1.ContainerStatus{ended("container-disk-binary", 0, ""), ended("volumeroot", 1, "Error")}, nil, ""), virtv1.Failed, reasonDiskFailed, "volumeroot"},
		"a kernel that is not there":   {failed([]corev1.ContainerStatus{ended("kernel-boot-kernel", 1, "Error")}, nil, ""), virtv1.Failed, reasonDiskFailed, "firmware.kernelBoot.container"},
		"an evicted pod":               {failed(nil, nil, reasonEvicted), virtv1.Failed, reasonEvicted, "evicted"},
	} {
		t.Run(name, func(t *testing.T) {
			got := endOf(c.pod)
			if c.phase == "" {
				if got != nil {
					t.Errorf("got %+v", got)
				}
				return
			}
			if got == nil || got.phase != c.phase || got.reason != c.reason || !strings.Contains(got.message, c.words) {
				t.Errorf("got %+v", got)
			}
		})
	}
	if !rejected(failed(nil, nil, "UnexpectedAdmissionError")) || rejected(failed(nil, nil, reasonEvicted)) {
		t.Error("a pod that the kubelet turned away is not told from one that it ended")
	}
}
