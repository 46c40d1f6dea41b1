package virtualmachineinstance

import (
	"fmt"
	"path"
	"strings"
	"unicode"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/util/validation/field"
	virtv1 "kubevirt.io/api/core/v1"
)

// Bounds of the node's file system, in bytes.
const (
	maxPath     = 4095
	maxFileName = 255
)

// hostDisk checks a file of the node.
func hostDisk(disk *virtv1.HostDisk, at *field.Path) field.ErrorList {
	errs := hostPath(disk.Path, at.Child("path"))
	capacity := at.Child("capacity")
	switch {
	case disk.Capacity.Sign() < 0:
		errs = append(errs, field.Invalid(capacity, disk.Capacity.String(), "must be greater than or equal to 0"))
	case disk.Type == virtv1.HostDiskExists && !disk.Capacity.IsZero():
		errs = append(errs, field.Invalid(capacity, disk.Capacity.String(),
			fmt.Sprintf("%s is allowed to pass only with %s equal to '%s'", capacity, at.Child("type"), virtv1.HostDiskExistsOrCreate)))
	}
	return errs
}

// hostPath checks that file names one, without detours.
func hostPath(file string, at *field.Path) field.ErrorList {
	if file == "" {
		return field.ErrorList{field.Required(at, fmt.Sprintf("%s is required for hostDisk volume", at))}
	}
	switch {
	case !path.IsAbs(file) || path.Clean(file) != file || file == "/" || strings.ContainsFunc(file, unicode.IsControl):
		return field.ErrorList{field.Invalid(at, file, "must be the absolute path of a file on the node, such as /data/vm/disk.img, without '..'")}
	case len(file) > maxPath:
		return field.ErrorList{field.TooLong(at, "", maxPath)}
	case len(path.Base(file)) > maxFileName:
		return field.ErrorList{field.Invalid(at, file, fmt.Sprintf("the file's name is longer than %d bytes, which no file system takes", maxFileName))}
	}
	return nil
}

// hostDisks finds the files of the node.
func hostDisks(spec, before *virtv1.VirtualMachineInstanceSpec, path *field.Path) []*field.Path {
	var found []*field.Path
	for i, volume := range spec.Volumes {
		if volume.HostDisk != nil && !has(before, volume) {
			found = append(found, path.Child("volumes").Index(i).Child("hostDisk"))
		}
	}
	return found
}

func has(spec *virtv1.VirtualMachineInstanceSpec, volume virtv1.Volume) bool {
	if spec == nil {
		return false
	}
	for _, other := range spec.Volumes {
		if other.Name == volume.Name && equality.Semantic.DeepEqual(other.HostDisk, volume.HostDisk) {
			return true
		}
	}
	return false
}
