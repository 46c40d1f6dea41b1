package virtualmachineinstance

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	virtv1 "kubevirt.io/api/core/v1"

	"github.com/slipway-vm/slipway/controllers/virtualmachineinstance/pod"
	"github.com/slipway-vm/slipway/internal/names"
)

// verdict is how a launcher pod ended.
type verdict struct {
	phase   virtv1.VirtualMachineInstancePhase
	reason  string
	message string
}

// endOf returns how pod ended, or nil when it has not. A launcher exits with 0 when
// the guest powered off, and with another code when it crashed or could not start.
func endOf(pod *corev1.Pod) *verdict {
	switch pod.Status.Phase {
	case corev1.PodSucceeded:
		return &verdict{phase: virtv1.Succeeded, reason: "", message: "the guest powered off"}
	case corev1.PodFailed:
		return failureOf(pod)
	}
	return nil
}

func failureOf(pod *corev1.Pod) *verdict {
	v := &verdict{phase: virtv1.Failed, reason: reasonPodFailed, message: "the launcher pod failed"}
	if pod.Status.Reason != "" {
		v.reason, v.message = pod.Status.Reason, pod.Status.Message
		if v.reason == reasonEvicted {
			v.message = "the node evicted the launcher pod: " + pod.Status.Message
		}
		return v
	}
	if c := failedContainer(pod.Status.InitContainerStatuses); c != nil {
		v.reason = reasonDiskFailed
		v.message = fmt.Sprintf("container %s (image %s) %s; look at %s", c.Name, c.Image, exit(c.State.Terminated), whereToLook(c.Name))
		return v
	}
	c := failedContainer(pod.Status.ContainerStatuses)
	if c == nil {
		return v
	}
	v.message = "the launcher " + exit(c.State.Terminated)
	if c.Name == names.ComputeContainer && c.State.Terminated.Reason == reasonOOM {
		v.reason = reasonOOM
		v.message = "the launcher pod used more memory than its limit; raise resources.limits.memory of the VMI, or leave it out"
	}
	return v
}

// whereToLook says what to correct when an init container found no file to hand over.
func whereToLook(container string) string {
	if pod.BootsKernel(container) {
		return "the paths of spec.domain.firmware.kernelBoot.container"
	}
	return "the image's /disk folder and the volume's path"
}

func failedContainer(statuses []corev1.ContainerStatus) *corev1.ContainerStatus {
	for i := range statuses {
		if end := statuses[i].State.Terminated; end != nil && end.ExitCode != 0 {
			return &statuses[i]
		}
	}
	return nil
}

// exit is a sentence's end about how a container ended, with its own last words.
func exit(end *corev1.ContainerStateTerminated) string {
	words := fmt.Sprintf("ended with code %d", end.ExitCode)
	if end.Signal != 0 {
		words = fmt.Sprintf("was ended by signal %d", end.Signal)
	}
	if end.Reason != "" && end.Reason != "Error" {
		words += " (" + end.Reason + ")"
	}
	if message := strings.TrimSpace(end.Message); message != "" {
		words += ": " + message
	}
	return words
}
