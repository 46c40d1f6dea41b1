//go:build integration

package handler_test

import (
	"syscall"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	v1 "kubevirt.io/api/core/v1"
)

// installation is what the KubeVirt object says of all guests: each has what it said when it started.
func (w *world) installation(t *testing.T) {
	defer w.startHandler(t)(syscall.SIGTERM)
	kubevirt := &v1.KubeVirt{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "kubevirt"}}
	kubevirt.Spec.Configuration.SMBIOSConfig = &v1.SMBiosConfiguration{Manufacturer: "Example"}
	kubevirt.Spec.Configuration.MemBalloonStatsPeriod = new(uint32(7))
	kubevirt.Spec.Configuration.VirtualMachineOptions = &v1.VirtualMachineOptions{DisableSerialConsoleLog: &v1.DisableSerialConsoleLog{}}
	must(t, w.client.Create(t.Context(), kubevirt))
	defer func() { must(t, w.client.Delete(t.Context(), kubevirt)) }()

	vmi := w.newVMI(t, "branded", 20)
	pod := w.newPod(t, vmi)
	pod.run(t, "container-disk", pod.file(t)).wait(t)
	launcher := pod.run(t, "launcher", string(vmi.UID))
	launcher.expect(t, "greeted", "sync branded with disks [root] 1", "made by Example", "tells of memory every 7 s", "without a log: true")
	w.eventually(t, vmi, "Running", func() bool { return vmi.Status.Phase == v1.Running })
	w.delete(t, vmi)
	launcher.expectShutdown(t, 20, "over")
}
