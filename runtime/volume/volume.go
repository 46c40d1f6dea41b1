// Package volume answers what a VMI's volumes ask of the node: which container disks
// must be handed over, which block devices the launcher opens, and how the disks of a
// running domain show in the VMI's status. It is pure.
package volume

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	v1 "kubevirt.io/api/core/v1"

	"github.com/slipway-vm/slipway/internal/names"
	"github.com/slipway-vm/slipway/runtime/protocol"
)

// Missing lists the container disks of vmi that are not in held, in the spec's order.
func Missing(vmi *v1.VirtualMachineInstance, held []string) []string {
	var missing []string
	for _, volume := range vmi.Spec.Volumes {
		if volume.ContainerDisk != nil && !slices.Contains(held, volume.Name) {
			missing = append(missing, volume.Name)
		}
	}
	return missing
}

// BlockDevices lists the device files in the compute container of pod that are volumes
// of mode Block.
func BlockDevices(pod *corev1.Pod) []string {
	var paths []string
	for _, container := range pod.Spec.Containers {
		if container.Name != names.ComputeContainer {
			continue
		}
		for _, device := range container.VolumeDevices {
			paths = append(paths, device.DevicePath)
		}
	}
	return paths
}

// Claims are the names of the persistent volume claims behind volumes of vmi, by volume.
func Claims(vmi *v1.VirtualMachineInstance) map[string]string {
	claims := map[string]string{}
	for _, volume := range vmi.Spec.Volumes {
		switch {
		case volume.PersistentVolumeClaim != nil:
			claims[volume.Name] = volume.PersistentVolumeClaim.ClaimName
		case volume.DataVolume != nil:
			claims[volume.Name] = volume.DataVolume.Name // a DataVolume's claim has its name
		}
	}
	return claims
}

// Status is status.volumeStatus of vmi while its domain has disks.
func Status(vmi *v1.VirtualMachineInstance, disks []protocol.Disk) []v1.VolumeStatus {
	claims := Claims(vmi)
	var status []v1.VolumeStatus
	for _, disk := range disks {
		one := v1.VolumeStatus{Name: disk.Volume, Target: disk.Target, Size: disk.Size}
		if claim := claims[disk.Volume]; claim != "" {
			one.PersistentVolumeClaimInfo = &v1.PersistentVolumeClaimInfo{ClaimName: claim}
		}
		status = append(status, one)
	}
	return status
}
