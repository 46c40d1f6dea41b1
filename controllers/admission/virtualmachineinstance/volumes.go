package virtualmachineinstance

import (
	"fmt"
	"reflect"
	"slices"

	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	virtv1 "kubevirt.io/api/core/v1"
)

func volumes(spec *virtv1.VirtualMachineInstanceSpec, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	at := path.Child("volumes")
	first := map[string]int{}
	for i, volume := range spec.Volumes {
		here := at.Index(i)
		if j, twice := first[volume.Name]; twice {
			errs = append(errs, field.Invalid(here.Child("name"), volume.Name, fmt.Sprintf("%s and %s must not have the same Name.", at.Index(j), here)))
		} else {
			first[volume.Name] = i
		}
		for _, message := range validation.IsDNS1123Label(volume.Name) {
			errs = append(errs, field.Invalid(here.Child("name"), volume.Name, message))
		}
		if sources(volume.VolumeSource) != 1 {
			errs = append(errs, field.Invalid(here, volume.Name, fmt.Sprintf("%s must have exactly one source type set", here)))
			continue
		}
		errs = append(errs, source(spec, volume, here)...)
	}
	return append(errs, single(spec, at)...)
}

// single checks volumes of which a VMI can have one.
func single(spec *virtv1.VirtualMachineInstanceSpec, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	accounts, cloudInits := 0, 0
	for i, volume := range spec.Volumes {
		if account := volume.ServiceAccount; account != nil {
			accounts++
			if of := spec.ServiceAccountName; of != "" && of != account.ServiceAccountName {
				here := at.Index(i).Child("serviceAccount", "serviceAccountName")
				errs = append(errs, field.Invalid(here, account.ServiceAccountName, fmt.Sprintf("the launcher pod is of ServiceAccount %s by spec.serviceAccountName; name the same, or leave that out", of)))
			}
		}
		cloudInits += count(volume.CloudInitNoCloud != nil, volume.CloudInitConfigDrive != nil)
	}
	if accounts > 1 {
		errs = append(errs, field.Invalid(at, accounts, fmt.Sprintf("%s must have max one serviceAccount volume set", at)))
	}
	if cloudInits > 1 {
		errs = append(errs, field.Invalid(at, cloudInits, fmt.Sprintf("%s must have max one cloud-init volume set; a guest reads one", at)))
	}
	return errs
}

// sources counts the sources of a volume.
func sources(source virtv1.VolumeSource) int {
	n := 0
	for _, value := range reflect.ValueOf(source).Fields() {
		if !value.IsNil() {
			n++
		}
	}
	return n
}

// maxContainerDisk is how long a containerDisk volume's name may be: a container is called after it.
const maxContainerDisk = 63 - len("volume")

func source(spec *virtv1.VirtualMachineInstanceSpec, volume virtv1.Volume, at *field.Path) field.ErrorList {
	switch {
	case volume.CloudInitNoCloud != nil:
		return cloudInit(volume.CloudInitNoCloud, at.Child("cloudInitNoCloud"))
	case volume.CloudInitConfigDrive != nil:
		same := virtv1.CloudInitNoCloudSource(*volume.CloudInitConfigDrive) // both have the same fields
		return cloudInit(&same, at.Child("cloudInitConfigDrive"))
	case volume.Sysprep != nil:
		return sysprep(volume.Sysprep, at.Child("sysprep"))
	case volume.HostDisk != nil:
		return hostDisk(volume.HostDisk, at.Child("hostDisk"))
	case volume.MemoryDump != nil:
		return memoryDump(spec, volume, at.Child("memoryDump"))
	}
	return append(disk(spec, volume, at), configDisc(volume, at)...)
}

// disk checks a volume that is a disk, not a disc of files.
func disk(spec *virtv1.VirtualMachineInstanceSpec, volume virtv1.Volume, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	switch {
	case volume.PersistentVolumeClaim != nil:
		here := at.Child("persistentVolumeClaim")
		if volume.PersistentVolumeClaim.ClaimName == "" {
			errs = append(errs, field.Required(here.Child("claimName"), "name the claim"))
		}
		if volume.PersistentVolumeClaim.ReadOnly && writable(spec, volume.Name) {
			errs = append(errs, field.Invalid(here.Child("readOnly"), true, fmt.Sprintf("disk %s is writable; set its disk.readonly, or make it a cdrom", volume.Name)))
		}
	case volume.DataVolume != nil:
		if volume.DataVolume.Name == "" {
			errs = append(errs, field.Required(at.Child("dataVolume", "name"), "DataVolume 'name' must be set"))
		}
	case volume.ContainerDisk != nil:
		if volume.ContainerDisk.Image == "" {
			errs = append(errs, field.Required(at.Child("containerDisk", "image"), "name the image"))
		}
		if len(volume.Name) > maxContainerDisk {
			errs = append(errs, field.TooLong(at.Child("name"), "", maxContainerDisk))
		}
	case volume.EmptyDisk != nil:
		if capacity := volume.EmptyDisk.Capacity; capacity.Sign() <= 0 {
			errs = append(errs, field.Invalid(at.Child("emptyDisk", "capacity"), capacity.String(), "must be greater than 0"))
		}
	case volume.Ephemeral != nil:
		if claim := volume.Ephemeral.PersistentVolumeClaim; claim == nil || claim.ClaimName == "" {
			errs = append(errs, field.Required(at.Child("ephemeral", "persistentVolumeClaim", "claimName"), "name the claim"))
		}
	}
	return errs
}

// memoryDump checks a volume that is no disk: the guest's memory is dumped to it.
func memoryDump(spec *virtv1.VirtualMachineInstanceSpec, volume virtv1.Volume, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	if volume.MemoryDump.ClaimName == "" {
		errs = append(errs, field.Required(at.Child("claimName"), "name the claim"))
	}
	if !volume.MemoryDump.Hotpluggable {
		errs = append(errs, field.Invalid(at.Child("hotpluggable"), false, "must be true: the claim comes while the guest runs"))
	}
	if slices.ContainsFunc(spec.Domain.Devices.Disks, func(disk virtv1.Disk) bool { return disk.Name == volume.Name }) {
		errs = append(errs, field.Invalid(at, volume.Name, "the guest's memory is dumped to this volume; remove the disk of its name"))
	}
	return errs
}

// sysprep checks that a disc of answers is made of one thing.
func sysprep(source *virtv1.SysprepSource, at *field.Path) field.ErrorList {
	if count(source.ConfigMap != nil, source.Secret != nil) != 1 {
		return field.ErrorList{field.Invalid(at, "", fmt.Sprintf("%s must have exactly one of configMap and secret", at))}
	}
	switch {
	case source.ConfigMap != nil && source.ConfigMap.Name == "":
		return field.ErrorList{field.Required(at.Child("configMap", "name"), "name the ConfigMap")}
	case source.Secret != nil && source.Secret.Name == "":
		return field.ErrorList{field.Required(at.Child("secret", "name"), "name the Secret")}
	}
	return nil
}

func writable(spec *virtv1.VirtualMachineInstanceSpec, volume string) bool {
	for _, disk := range spec.Domain.Devices.Disks {
		if disk.Name == volume && disk.Disk != nil {
			return !disk.Disk.ReadOnly
		}
	}
	return false
}

func count(conditions ...bool) int {
	n := 0
	for _, holds := range conditions {
		if holds {
			n++
		}
	}
	return n
}
