package volume

import (
	corev1 "k8s.io/api/core/v1"
	v1 "kubevirt.io/api/core/v1"

	"github.com/slipway-vm/slipway/internal/names"
)

// Access is what a guest does with a disk.
type Access struct {
	// Writes says that the guest may write to it, Alone that nobody else may meanwhile.
	Writes, Alone bool
}

// AccessOf is what the guest of vmi does with its disk called name.
func AccessOf(vmi *v1.VirtualMachineInstance, name string) Access {
	for i := range vmi.Spec.Domain.Devices.Disks {
		disk := &vmi.Spec.Domain.Devices.Disks[i]
		if disk.Name != name {
			continue
		}
		reads := disk.CDRom != nil || disk.Disk != nil && disk.Disk.ReadOnly || disk.LUN != nil && disk.LUN.ReadOnly
		return Access{Writes: !reads, Alone: !reads && (disk.Shareable == nil || !*disk.Shareable)}
	}
	return Access{}
}

// HeldAsDevice says whether an attachment pod has its volume as a block device.
func HeldAsDevice(pod *corev1.Pod) bool {
	for i := range pod.Spec.Containers {
		if container := &pod.Spec.Containers[i]; container.Name == names.AppAttachment {
			return len(container.VolumeDevices) > 0
		}
	}
	return false
}
