// Package volume answers what a VMI's volumes ask of the node: which container disks
// must be handed over, which block devices the launcher opens, and how the disks of a
// running domain show in the VMI's status. It is pure.
package volume

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	v1 "kubevirt.io/api/core/v1"

	"github.com/slipway-vm/slipway/internal/names"
	"github.com/slipway-vm/slipway/runtime/protocol"
)

// Missing lists the container disks of vmi that are not in held, in the spec's order, and
// the files of its kernel boot.
func Missing(vmi *v1.VirtualMachineInstance, held []string) []string {
	var missing []string
	for _, volume := range vmi.Spec.Volumes {
		if volume.ContainerDisk != nil && !slices.Contains(held, volume.Name) {
			missing = append(missing, volume.Name)
		}
	}
	for _, name := range kernelFiles(vmi) {
		if !slices.Contains(held, name) {
			missing = append(missing, name)
		}
	}
	return missing
}

// kernelFiles are the names under which the kernel that vmi boots, and its initial file
// system, are handed over.
func kernelFiles(vmi *v1.VirtualMachineInstance) []string {
	firmware := vmi.Spec.Domain.Firmware
	if firmware == nil || firmware.KernelBoot == nil || firmware.KernelBoot.Container == nil {
		return nil
	}
	var files []string
	if firmware.KernelBoot.Container.KernelPath != "" {
		files = append(files, names.KernelBootKernel)
	}
	if firmware.KernelBoot.Container.InitrdPath != "" {
		files = append(files, names.KernelBootInitrd)
	}
	return files
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

// preallocations are what is in the names of annotations by which a claim says that its disk has all of
// its size: what fills it writes the first, an administrator of thick storage either.
var preallocations = []string{"/storage.preallocation", "/storage.thick-provisioned"}

// Preallocated says whether the disk on claim keeps all of its size, whatever the guest has no more use for.
func Preallocated(claim *corev1.PersistentVolumeClaim) bool {
	for name, value := range claim.Annotations {
		for _, part := range preallocations {
			if value == "true" && strings.Contains(name, part) {
				return true
			}
		}
	}
	return false
}

// DumpClaims are the names of the claims to which the memory of vmi's guest is to be dumped, by volume.
func DumpClaims(vmi *v1.VirtualMachineInstance) map[string]string {
	claims := map[string]string{}
	for _, volume := range vmi.Spec.Volumes {
		if volume.MemoryDump != nil {
			claims[volume.Name] = volume.MemoryDump.ClaimName
		}
	}
	return claims
}

// Status is status.volumeStatus of vmi while its domain has disks. preallocated are the volumes whose
// claims keep all of their size.
func Status(vmi *v1.VirtualMachineInstance, disks []protocol.Disk, preallocated []string) []v1.VolumeStatus {
	claims := Claims(vmi)
	var status []v1.VolumeStatus
	for _, disk := range disks {
		one := v1.VolumeStatus{Name: disk.Volume, Target: disk.Target, Size: disk.Size}
		if claim := claims[disk.Volume]; claim != "" {
			one.PersistentVolumeClaimInfo = &v1.PersistentVolumeClaimInfo{ClaimName: claim, Preallocated: slices.Contains(preallocated, disk.Volume)}
		}
		status = append(status, one)
	}
	return status
}

// Mounted says whether the launcher pod has the claim of the VMI's volume.
func Mounted(pod *corev1.Pod, volume, claim string) bool {
	for _, one := range pod.Spec.Volumes {
		source := one.PersistentVolumeClaim
		if source != nil && source.ClaimName == claim && (one.Name == volume || one.Name == "volume-"+volume) {
			return true
		}
	}
	return false
}

// Held is the VMI's volume that an attachment pod holds.
func Held(pod *corev1.Pod) string { return pod.Annotations[names.AnnotationVolume] }

// ClaimOfPod is the claim that an attachment pod holds.
func ClaimOfPod(pod *corev1.Pod) string {
	for _, one := range pod.Spec.Volumes {
		if one.PersistentVolumeClaim != nil {
			return one.PersistentVolumeClaim.ClaimName
		}
	}
	return ""
}

// AtStart returns vmi as its launcher can start it: without the disks on claims that came
// after its pod, which are plugged in once it runs.
func AtStart(vmi *v1.VirtualMachineInstance, pod *corev1.Pod) *v1.VirtualMachineInstance {
	late := map[string]bool{}
	for volume, claim := range Claims(vmi) {
		if !Mounted(pod, volume, claim) {
			late[volume] = true
		}
	}
	if len(late) == 0 {
		return vmi
	}
	out := vmi.DeepCopy()
	out.Spec.Volumes = slices.DeleteFunc(out.Spec.Volumes, func(volume v1.Volume) bool { return late[volume.Name] })
	out.Spec.Domain.Devices.Disks = slices.DeleteFunc(out.Spec.Domain.Devices.Disks, func(disk v1.Disk) bool {
		return late[disk.Name] && disk.CDRom == nil
	})
	return out
}
