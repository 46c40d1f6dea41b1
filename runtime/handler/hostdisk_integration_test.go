//go:build integration

package handler_test

import (
	"syscall"
	"testing"

	"k8s.io/apimachinery/pkg/api/resource"
	v1 "kubevirt.io/api/core/v1"
)

// hostDisk is virt-handler's part of a file of the node: the launcher may not write to the folder.
func (w *world) hostDisk(t *testing.T) {
	stop := w.startHandler(t)
	vmi := w.newVMI(t, "node-file", 20, func(spec *v1.VirtualMachineInstanceSpec) {
		spec.Volumes = append(spec.Volumes, v1.Volume{Name: "node", VolumeSource: v1.VolumeSource{
			HostDisk: &v1.HostDisk{Path: "/data/vm.img", Type: v1.HostDiskExistsOrCreate, Capacity: resource.MustParse("1Mi")},
		}})
	})
	pod := w.newPod(t, vmi)
	pod.run(t, "container-disk", pod.file(t)).wait(t)
	launcher := pod.run(t, "launcher", string(vmi.UID))
	launcher.expect(t, "greeted", "file vm.img 1048576 107 107 -rw-rw----", "sync node-file with disks [root] 1")
	w.eventually(t, vmi, "Running", func() bool { return vmi.Status.Phase == v1.Running })

	stop(syscall.SIGKILL)
	launcher.expect(t, "lost")
	defer w.startHandler(t)(syscall.SIGTERM)
	launcher.expect(t, "greeted", "file vm.img 1048576 107 107 -rw-rw----", "sync node-file with disks [] 0")
	w.delete(t, vmi)
	launcher.expectShutdown(t, 20, "over")
}
