package virtualmachineinstance

import (
	"fmt"

	"k8s.io/apimachinery/pkg/util/validation/field"
	virtv1 "kubevirt.io/api/core/v1"

	"github.com/slipway-vm/slipway/controllers/hotplug"
)

// maxTag is how many bytes a guest has for the name by which it mounts a filesystem.
const maxTag = 36

// filesystems checks the folders that the guest mounts. That a claim is a block device, which has none, shows only when the
// claim is there: the start waits, and says so.
func filesystems(spec *virtv1.VirtualMachineInstanceSpec, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	at := path.Child("domain", "devices", "filesystems")
	volumes := map[string]int{}
	for i, volume := range spec.Volumes {
		volumes[volume.Name] = i
	}
	first := map[string]int{}
	for i, filesystem := range spec.Domain.Devices.Filesystems {
		here := at.Index(i)
		if j, twice := first[filesystem.Name]; twice {
			errs = append(errs, field.Invalid(here.Child("name"), filesystem.Name, fmt.Sprintf("%s and %s must not have the same Name.", at.Index(j), here)))
			continue
		}
		first[filesystem.Name] = i
		if filesystem.Virtiofs == nil {
			errs = append(errs, field.Required(here.Child("virtiofs"), "set it to {}: a guest gets a folder in no other way"))
		}
		if len(filesystem.Name) > maxTag {
			errs = append(errs, field.TooLong(here.Child("name"), "", maxTag))
		}
		if hotplug.Disk(spec, filesystem.Name) != nil {
			errs = append(errs, field.Invalid(here.Child("name"), filesystem.Name, "the volume is a disk of the guest, too; remove the disk, or the filesystem"))
		}
		index, found := volumes[filesystem.Name]
		if !found {
			errs = append(errs, field.Invalid(here.Child("name"), filesystem.Name, fmt.Sprintf("%s '%s' not found.", here.Child("Name"), filesystem.Name)))
			continue
		}
		errs = append(errs, folder(spec.Volumes[index], path.Child("volumes").Index(index))...)
	}
	return errs
}

// folder checks a volume that the guest mounts.
func folder(volume virtv1.Volume, at *field.Path) field.ErrorList {
	switch {
	case volume.ConfigMap != nil:
		return unlabelled(volume.ConfigMap.VolumeLabel, at.Child("configMap"))
	case volume.Secret != nil:
		return unlabelled(volume.Secret.VolumeLabel, at.Child("secret"))
	case volume.DownwardAPI != nil:
		return unlabelled(volume.DownwardAPI.VolumeLabel, at.Child("downwardAPI"))
	case volume.ServiceAccount != nil:
		return nil
	case hotplug.Volume(volume):
		return field.ErrorList{field.Forbidden(at, "a filesystem is there from the guest's start to its end; leave hotpluggable out")}
	case volume.PersistentVolumeClaim != nil, volume.DataVolume != nil:
		return nil
	}
	return field.ErrorList{field.Invalid(at, volume.Name, "is no folder that a guest can mount; use configMap, secret, serviceAccount, downwardAPI, persistentVolumeClaim or dataVolume")}
}

// unlabelled refuses the label of a disc that there is not.
func unlabelled(label string, at *field.Path) field.ErrorList {
	if label == "" {
		return nil
	}
	return field.ErrorList{field.Invalid(at.Child("volumeLabel"), label, "is the label of a disc, and the guest mounts the volume by its name; remove the field")}
}
