package virtualmachineinstance

import (
	"fmt"

	"k8s.io/apimachinery/pkg/util/validation/field"
	virtv1 "kubevirt.io/api/core/v1"
)

// sound checks the sound device; its model is one of the supported fields' list.
func sound(spec *virtv1.VirtualMachineInstanceSpec, path *field.Path) field.ErrorList {
	if device := spec.Domain.Devices.Sound; device != nil && device.Name == "" {
		return field.ErrorList{field.Required(path.Child("domain", "devices", "sound", "name"), "Sound device requires a name field.")}
	}
	return nil
}

// maxPool is how many I/O threads a pool may have; more than a node has processors are of no use.
const maxPool = 256

// ioThreads checks that the size of a supplemental pool is there with its policy, and only then.
func ioThreads(spec *virtv1.VirtualMachineInstanceSpec, path *field.Path) field.ErrorList {
	policy, threads := spec.Domain.IOThreadsPolicy, spec.Domain.IOThreads
	at := path.Child("domain", "ioThreads", "supplementalPoolThreadCount")
	var count *uint32
	if threads != nil {
		count = threads.SupplementalPoolThreadCount
	}
	switch supplemental := policy != nil && *policy == virtv1.IOThreadsPolicySupplementalPool; {
	case supplemental && (count == nil || *count == 0):
		return field.ErrorList{field.Required(at, "the number of iothreads needs to be set and positive for the dedicated policy")}
	case !supplemental && count != nil:
		return field.ErrorList{field.Invalid(at, *count, "is only for ioThreadsPolicy supplementalPool; set that policy, or remove this field")}
	case supplemental && *count > maxPool:
		return field.ErrorList{field.Invalid(at, *count, fmt.Sprintf("must be at most %d", maxPool))}
	}
	return nil
}

// lun checks a disk that is handed to the guest as the SCSI device that it is.
func lun(disk virtv1.Disk, at *field.Path) field.ErrorList {
	if disk.LUN == nil {
		return nil
	}
	var errs field.ErrorList
	if disk.Serial != "" {
		errs = append(errs, field.Invalid(at.Child("serial"), disk.Serial, "a lun has the serial number of its device; remove the field"))
	}
	if disk.BlockSize != nil {
		errs = append(errs, field.Invalid(at.Child("blockSize"), "set", "a lun has the block size of its device; remove the field"))
	}
	return errs
}

// lunVolumes checks that a lun is on a claim, the only volume that can be a device.
func lunVolumes(spec *virtv1.VirtualMachineInstanceSpec, path *field.Path) field.ErrorList {
	onClaim := map[string]bool{}
	for _, volume := range spec.Volumes {
		onClaim[volume.Name] = volume.PersistentVolumeClaim != nil || volume.DataVolume != nil
	}
	var errs field.ErrorList
	for i, disk := range spec.Domain.Devices.Disks {
		if disk.LUN != nil && !onClaim[disk.Name] {
			errs = append(errs, field.Invalid(path.Child("domain", "devices", "disks").Index(i).Child("lun"), disk.Name,
				"a lun needs a persistentVolumeClaim or dataVolume with volumeMode Block"))
		}
	}
	return errs
}

// shared checks that a disk which several guests write to is one that they all have: what a pod
// makes for its guest is that pod's alone.
func shared(spec *virtv1.VirtualMachineInstanceSpec, path *field.Path) field.ErrorList {
	own := map[string]bool{}
	for _, volume := range spec.Volumes {
		own[volume.Name] = volume.ContainerDisk != nil || volume.EmptyDisk != nil || volume.Ephemeral != nil
	}
	var errs field.ErrorList
	for i, disk := range spec.Domain.Devices.Disks {
		if disk.Shareable != nil && *disk.Shareable && own[disk.Name] {
			errs = append(errs, field.Invalid(path.Child("domain", "devices", "disks").Index(i).Child("shareable"), true,
				"the volume is made for this guest alone; use a persistentVolumeClaim or dataVolume, or remove the field"))
		}
	}
	return errs
}

// maxKernelArgs is what the kernel takes of a command line.
const maxKernelArgs = 2047

// kernelBoot checks the kernel that is booted without a boot loader.
func kernelBoot(spec *virtv1.VirtualMachineInstanceSpec, path *field.Path) field.ErrorList {
	if spec.Domain.Firmware == nil || spec.Domain.Firmware.KernelBoot == nil {
		return nil
	}
	boot, at := spec.Domain.Firmware.KernelBoot, path.Child("domain", "firmware", "kernelBoot")
	if boot.Container == nil {
		if boot.KernelArgs != "" {
			return field.ErrorList{field.Invalid(at.Child("kernelArgs"), boot.KernelArgs, "kernel arguments cannot be provided without an external kernel")}
		}
		return nil
	}
	var errs field.ErrorList
	container := at.Child("container")
	if boot.Container.Image == "" {
		errs = append(errs, field.Required(container.Child("image"), container.String()+" must be defined with an image"))
	}
	switch {
	case boot.Container.KernelPath == "" && boot.Container.InitrdPath == "":
		errs = append(errs, field.Required(container, container.String()+" must be defined with at least one of the following: kernelPath, initrdPath"))
	case boot.Container.KernelPath == "":
		errs = append(errs, field.Required(container.Child("kernelPath"), "an initrd needs its kernel; name that too"))
	}
	if len(boot.KernelArgs) > maxKernelArgs {
		errs = append(errs, field.TooLong(at.Child("kernelArgs"), "", maxKernelArgs))
	}
	return errs
}
