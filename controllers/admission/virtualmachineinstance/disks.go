package virtualmachineinstance

import (
	"cmp"
	"fmt"
	"regexp"

	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"
	virtv1 "kubevirt.io/api/core/v1"
)

// maxSerial is how long a disk's serial number may be.
const maxSerial = 256

var serials = regexp.MustCompile(`^[A-Za-z0-9_.+-]+$`)

func disks(spec *virtv1.VirtualMachineInstanceSpec, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	at := path.Child("domain", "devices", "disks")
	has := map[string]bool{}
	for _, volume := range spec.Volumes {
		has[volume.Name] = true
	}
	first := map[string]int{}
	for i, disk := range spec.Domain.Devices.Disks {
		here := at.Index(i)
		if j, twice := first[disk.Name]; twice {
			errs = append(errs, field.Invalid(here.Child("name"), disk.Name, fmt.Sprintf("%s and %s must not have the same Name.", at.Index(j), here)))
		} else {
			first[disk.Name] = i
		}
		if !has[disk.Name] && disk.CDRom == nil { // a drive may be empty
			errs = append(errs, field.Invalid(here.Child("name"), disk.Name, fmt.Sprintf("%s '%s' not found.", here.Child("Name"), disk.Name)))
		}
		errs = append(errs, target(disk, here)...)
		errs = append(errs, lun(disk, here)...)
		errs = append(errs, details(disk, here)...)
	}
	return errs
}

// target checks what kind of device a disk is.
func target(disk virtv1.Disk, at *field.Path) field.ErrorList {
	targets := 0
	for _, isSet := range []bool{disk.Disk != nil, disk.CDRom != nil, disk.LUN != nil} {
		if isSet {
			targets++
		}
	}
	if targets != 1 {
		return field.ErrorList{field.Invalid(at, disk.Name, "must have exactly one of disk, cdrom and lun")}
	}
	if disk.CDRom == nil {
		return nil
	}
	var errs field.ErrorList
	if disk.CDRom.Bus == virtv1.DiskBusVirtio {
		errs = append(errs, field.Invalid(at.Child("cdrom", "bus"), disk.CDRom.Bus, "Bus type virtio is invalid for CD-ROM device"))
	}
	if readOnly := disk.CDRom.ReadOnly; readOnly != nil && !*readOnly {
		errs = append(errs, field.Invalid(at.Child("cdrom", "readonly"), false, "a CD-ROM is read-only; leave the field out"))
	}
	return errs
}

// details checks the rest of a disk.
func details(disk virtv1.Disk, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	if s := disk.Serial; s != "" && (len(s) > maxSerial || !serials.MatchString(s)) {
		errs = append(errs, field.Invalid(at.Child("serial"), s, fmt.Sprintf("must be made up of A-Z, a-z, 0-9 and _.+-, at most %d of them", maxSerial)))
	}
	switch disk.Cache {
	case "", virtv1.CacheNone, virtv1.CacheWriteThrough, virtv1.CacheWriteBack:
	default:
		errs = append(errs, field.NotSupported(at.Child("cache"), disk.Cache, []virtv1.DriverCache{virtv1.CacheNone, virtv1.CacheWriteThrough, virtv1.CacheWriteBack}))
	}
	switch disk.IO {
	case "", virtv1.IONative, virtv1.IOThreads:
	default:
		errs = append(errs, field.NotSupported(at.Child("io"), disk.IO, []virtv1.DriverIO{virtv1.IONative, virtv1.IOThreads}))
	}
	if disk.IO == virtv1.IONative && (disk.Cache == virtv1.CacheWriteThrough || disk.Cache == virtv1.CacheWriteBack) {
		errs = append(errs, field.Invalid(at.Child("io"), disk.IO, fmt.Sprintf("native goes past the cache of the node, and cache is %s; use cache none, or io threads", disk.Cache)))
	}
	if policy := disk.ErrorPolicy; policy != nil {
		switch *policy {
		case virtv1.DiskErrorPolicyStop, virtv1.DiskErrorPolicyIgnore, virtv1.DiskErrorPolicyReport, virtv1.DiskErrorPolicyEnospace:
		default:
			errs = append(errs, field.Invalid(at.Child("errorPolicy"), *policy, "has invalid value; use stop, ignore, report or enospace"))
		}
	}
	return append(errs, blockSize(disk, at)...)
}

func blockSize(disk virtv1.Disk, at *field.Path) field.ErrorList {
	if disk.BlockSize == nil {
		return nil
	}
	match := disk.BlockSize.MatchVolume != nil && ptr.Deref(disk.BlockSize.MatchVolume.Enabled, true)
	switch custom := disk.BlockSize.Custom; {
	case match && custom != nil:
		return field.ErrorList{field.Forbidden(at.Child("blockSize"), "custom and matchVolume are mutually exclusive; keep one of them")}
	case match && onATA(disk):
		return field.ErrorList{field.Invalid(at.Child("blockSize", "matchVolume"), true, "blocks of a disk on the bus sata are of 512 bytes; use the bus virtio or scsi, or remove the field")}
	case custom != nil:
		return customBlocks(disk, at.Child("blockSize", "custom"))
	}
	return nil
}

// onATA says whether a disk is on the bus of the default, whose disks have blocks of 512 bytes as guests see them.
func onATA(disk virtv1.Disk) bool {
	switch {
	case disk.Disk != nil:
		return cmp.Or(disk.Disk.Bus, virtv1.DiskBusSATA) == virtv1.DiskBusSATA
	case disk.CDRom != nil:
		return cmp.Or(disk.CDRom.Bus, virtv1.DiskBusSATA) == virtv1.DiskBusSATA
	}
	return false
}

func customBlocks(disk virtv1.Disk, here *field.Path) field.ErrorList {
	var errs field.ErrorList
	custom := disk.BlockSize.Custom
	for _, size := range []struct {
		name  string
		value uint
	}{{"logical", custom.Logical}, {"physical", custom.Physical}} {
		if size.value < 512 || size.value > 2<<20 || size.value&(size.value-1) != 0 {
			errs = append(errs, field.Invalid(here.Child(size.name), size.value, "must be a power of 2 from 512 to 2097152"))
		}
	}
	if onATA(disk) && custom.Logical > 512 {
		errs = append(errs, field.Invalid(here.Child("logical"), custom.Logical, "must be 512 on the bus sata; use virtio or scsi"))
	}
	if custom.Logical > custom.Physical {
		errs = append(errs, field.Invalid(here.Child("logical"), custom.Logical, fmt.Sprintf("must be at most the physical size %d", custom.Physical)))
	}
	return errs
}

// bootOrder checks that no two devices have the same place.
func bootOrder(spec *virtv1.VirtualMachineInstanceSpec, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	taken := map[uint]bool{}
	check := func(order *uint, at *field.Path) {
		switch {
		case order == nil:
		case *order < 1:
			errs = append(errs, field.Invalid(at, *order, "must have a boot order > 0, if supplied"))
		case taken[*order]:
			errs = append(errs, field.Invalid(at, *order, fmt.Sprintf("Boot order for %s already set for a different device.", at)))
		default:
			taken[*order] = true
		}
	}
	devices := path.Child("domain", "devices")
	for i := range spec.Domain.Devices.Disks {
		check(spec.Domain.Devices.Disks[i].BootOrder, devices.Child("disks").Index(i).Child("bootOrder"))
	}
	for i := range spec.Domain.Devices.Interfaces {
		check(spec.Domain.Devices.Interfaces[i].BootOrder, devices.Child("interfaces").Index(i).Child("bootOrder"))
	}
	return errs
}
