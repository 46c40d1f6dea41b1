// Package hotplug says which disks of a virtual machine come and go while it runs, and
// how the specs of a VM and of its running instance change with them. It is pure.
package hotplug

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/utils/ptr"
	virtv1 "kubevirt.io/api/core/v1"
)

// AnnotationEphemeral lists, on a VirtualMachineInstance, the volumes that were added to it
// and not to its VirtualMachine; they go when it ends. The name is the field's.
const AnnotationEphemeral = "kubevirt.io/ephemeral-hotplug-volumes"

// Volume says whether volume may come and go.
func Volume(volume virtv1.Volume) bool {
	return volume.DataVolume != nil && volume.DataVolume.Hotpluggable ||
		volume.PersistentVolumeClaim != nil && volume.PersistentVolumeClaim.Hotpluggable
}

// Source is the claim, or DataVolume, that volume is on; empty for any other.
func Source(volume virtv1.Volume) string {
	switch {
	case volume.DataVolume != nil:
		return volume.DataVolume.Name
	case volume.PersistentVolumeClaim != nil:
		return volume.PersistentVolumeClaim.ClaimName
	}
	return ""
}

// CheckDisk says why disk cannot be given to a running machine, in the field's words.
func CheckDisk(name string, disk *virtv1.Disk) error {
	const prefix = "Hotplug configuration"
	switch {
	case disk == nil:
		return fmt.Errorf("%s for [%s] requires the disk field to be set.", prefix, name) //nolint:staticcheck,revive // the field's own words
	case disk.LUN != nil && disk.LUN.Bus != virtv1.DiskBusSCSI:
		return fmt.Errorf("%s for LUN [%s] requires bus to be 'scsi'. [%s] is not permitted.", prefix, name, disk.LUN.Bus) //nolint:staticcheck,revive // as above
	case disk.Disk == nil && disk.LUN == nil:
		return fmt.Errorf("%s for [%s] requires diskDevice of type 'disk' or 'lun' to be used.", prefix, name) //nolint:staticcheck,revive // as above
	case disk.Disk != nil && disk.Disk.Bus != virtv1.DiskBusSCSI && disk.Disk.Bus != virtv1.DiskBusVirtio:
		return fmt.Errorf("%s for disk [%s] requires bus to be 'scsi' or 'virtio'. [%s] is not permitted.", prefix, name, disk.Disk.Bus) //nolint:staticcheck,revive // as above
	case ptr.Deref(disk.DedicatedIOThread, false):
		return fmt.Errorf("%s for disk [%s]: dedicatedIOThread cannot be given to a running machine; leave it out", prefix, name)
	}
	return nil
}

// Disk returns the disk of spec called name, nil for none.
func Disk(spec *virtv1.VirtualMachineInstanceSpec, name string) *virtv1.Disk {
	disks := spec.Domain.Devices.Disks
	if i := slices.IndexFunc(disks, func(disk virtv1.Disk) bool { return disk.Name == name }); i >= 0 {
		return &disks[i]
	}
	return nil
}

// live says whether the volume comes and goes while a machine of spec runs: with its disk,
// or as the disc of a CD-ROM drive that stays.
func live(spec *virtv1.VirtualMachineInstanceSpec, volume virtv1.Volume) bool {
	disk := Disk(spec, volume.Name)
	if !Volume(volume) || disk == nil || spec.Domain.Devices.DisableHotplug {
		return false
	}
	return disk.CDRom != nil || CheckDisk(volume.Name, disk) == nil
}

// Fixed returns spec without what comes and goes while its machine runs: what is left is
// what a running machine cannot take up.
func Fixed(spec *virtv1.VirtualMachineInstanceSpec) *virtv1.VirtualMachineInstanceSpec {
	out := WithoutDumps(spec)
	for _, volume := range spec.Volumes {
		if live(spec, volume) {
			Remove(out, volume.Name)
		}
	}
	return out
}

// Follow changes running, the spec of a VM's instance, to have the volumes that come and
// go of template, the VM's own; ephemeral volumes stay. It says whether anything changed.
func Follow(running, template *virtv1.VirtualMachineInstanceSpec, ephemeral []string) bool {
	changed := false
	for _, volume := range slices.Clone(running.Volumes) {
		wanted := slices.ContainsFunc(template.Volumes, func(other virtv1.Volume) bool { return other.Name == volume.Name })
		if !wanted && live(running, volume) && !slices.Contains(ephemeral, volume.Name) {
			Remove(running, volume.Name)
			changed = true
		}
	}
	for _, volume := range template.Volumes {
		if live(template, volume) {
			changed = take(running, template, volume) || changed
		}
	}
	return changed
}

// take gives running the volume of template, or the volume's other source.
func take(running, template *virtv1.VirtualMachineInstanceSpec, volume virtv1.Volume) bool {
	disk, has := Disk(template, volume.Name), Disk(running, volume.Name)
	i := slices.IndexFunc(running.Volumes, func(other virtv1.Volume) bool { return other.Name == volume.Name })
	switch {
	case i >= 0:
		if !live(running, running.Volumes[i]) || Source(running.Volumes[i]) == Source(volume) {
			return false
		}
		running.Volumes[i] = *volume.DeepCopy()
	case disk.CDRom != nil && (has == nil || has.CDRom == nil), disk.CDRom == nil && has != nil:
		return false // a drive comes at the next start only
	case disk.CDRom != nil:
		running.Volumes = append(running.Volumes, *volume.DeepCopy())
	default:
		Add(running, disk, volume)
	}
	return true
}

// Add gives spec a disk on volume.
func Add(spec *virtv1.VirtualMachineInstanceSpec, disk *virtv1.Disk, volume virtv1.Volume) {
	added := *disk.DeepCopy()
	added.Name = volume.Name
	spec.Domain.Devices.Disks = append(spec.Domain.Devices.Disks, added)
	spec.Volumes = append(spec.Volumes, *volume.DeepCopy())
}

// Remove takes the volume called name from spec, and its disk unless that is a CD-ROM drive.
func Remove(spec *virtv1.VirtualMachineInstanceSpec, name string) {
	spec.Volumes = slices.DeleteFunc(spec.Volumes, func(volume virtv1.Volume) bool { return volume.Name == name })
	spec.Domain.Devices.Disks = slices.DeleteFunc(spec.Domain.Devices.Disks, func(disk virtv1.Disk) bool {
		return disk.Name == name && disk.CDRom == nil
	})
}

// Ephemeral lists the volumes that only the instance has.
func Ephemeral(vmi *virtv1.VirtualMachineInstance) []string {
	list := vmi.Annotations[AnnotationEphemeral]
	if list == "" {
		return nil
	}
	return strings.Split(list, ",")
}
