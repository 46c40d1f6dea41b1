//go:build integration

package handler_test

import (
	"syscall"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	v1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// probed plays the kubelet: it writes what the readiness probe found, and ends the
// launcher as after a failed liveness probe, and as after the deletion of its pod.
func (w *world) probed(t *testing.T) {
	defer w.startHandler(t)(syscall.SIGTERM)
	for name, deleted := range map[string]bool{"probed": false, "deleted": true} {
		vmi, pod, launcher := w.probedVMI(t, name)
		w.eventually(t, vmi, "Running", func() bool { return vmi.Status.Phase == v1.Running })
		w.eventually(t, vmi, "unready", func() bool { return conditionsOf(vmi)["Ready"] == "False" })
		w.kubelet(t, pod, corev1.PodCondition{Type: corev1.PodReady, Status: corev1.ConditionTrue})
		w.eventually(t, vmi, "ready", func() bool { return conditionsOf(vmi)["Ready"] == "True" })
		w.kubelet(t, pod, corev1.PodCondition{Type: corev1.PodReady, Status: corev1.ConditionFalse, Reason: "ContainersNotReady", Message: "containers with unready status: [compute]"})
		w.eventually(t, vmi, "unready, with the pod's reason", func() bool {
			return conditionsOf(vmi)["Ready"] == "False" && readyReason(vmi) == "ContainersNotReady"
		})
		if deleted {
			must(t, w.client.Delete(t.Context(), pod, client.GracePeriodSeconds(60)))
		}
		must(t, launcher.command.Process.Signal(syscall.SIGTERM))
		launcher.expect(t, "over")
		if deleted {
			w.eventually(t, vmi, "Succeeded", func() bool { return vmi.Status.Phase == v1.Succeeded })
			continue
		}
		w.eventually(t, vmi, "Failed", func() bool { return vmi.Status.Phase == v1.Failed })
		if got := readyReason(vmi); got != "LivenessProbeFailed" {
			t.Errorf("Ready says %s", got)
		}
		w.events(t, vmi, "Started", "LivenessProbeFailed")
	}
}

func (w *world) probedVMI(t *testing.T, name string) (*v1.VirtualMachineInstance, *corev1.Pod, *testProcess) {
	t.Helper()
	probe := &v1.Probe{Handler: v1.Handler{TCPSocket: &corev1.TCPSocketAction{Port: intstr.FromInt32(22)}}}
	vmi := w.newVMI(t, name, 20, func(spec *v1.VirtualMachineInstanceSpec) { spec.LivenessProbe, spec.ReadinessProbe = probe, probe })
	p := w.newPod(t, vmi, func(pod *corev1.Pod) {
		pod.Spec.Containers[0].ReadinessProbe = &corev1.Probe{ProbeHandler: corev1.ProbeHandler{TCPSocket: probe.TCPSocket}}
	})
	p.run(t, "container-disk", p.file(t)).wait(t)
	launcher := p.run(t, "launcher", string(vmi.UID))
	launcher.expect(t, "greeted", "sync "+name+" with disks [root] 1")
	pod := &corev1.Pod{}
	must(t, w.client.Get(t.Context(), client.ObjectKey{Namespace: vmi.Namespace, Name: "virt-launcher-" + name}, pod))
	return vmi, pod, launcher
}

// kubelet writes a condition of pod.
func (w *world) kubelet(t *testing.T, pod *corev1.Pod, condition corev1.PodCondition) {
	t.Helper()
	before := pod.DeepCopy()
	pod.Status.Conditions = []corev1.PodCondition{condition}
	must(t, w.client.Status().Patch(t.Context(), pod, client.MergeFrom(before)))
}

func readyReason(vmi *v1.VirtualMachineInstance) string {
	for _, condition := range vmi.Status.Conditions {
		if condition.Type == v1.VirtualMachineInstanceReady {
			return condition.Reason
		}
	}
	return ""
}
