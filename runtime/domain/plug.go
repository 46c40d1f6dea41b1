package domain

import (
	"fmt"
	"slices"

	v1 "kubevirt.io/api/core/v1"
	"libvirt.org/go/libvirtxml"
)

// IsDrive says whether the disk of vmi called name is a CD-ROM drive, which stays when its
// disc comes or goes.
func IsDrive(vmi *v1.VirtualMachineInstance, name string) bool {
	spec := diskNamed(vmi, name)
	return spec != nil && spec.CDRom != nil
}

// Source is where QEMU finds image.
func Source(image Image) *libvirtxml.DomainDiskSource { return imageSource(image) }

// Plug returns the disk of in.VMI called name as it is given to a domain that runs, whose
// other disks are at the targets taken.
func Plug(vmi *v1.VirtualMachineInstance, name string, source Disk, taken []string) (*libvirtxml.DomainDisk, error) {
	spec := diskNamed(vmi, name)
	if spec == nil {
		return nil, fmt.Errorf("disk %s is not in spec.domain.devices.disks: add it", name)
	}
	if bus := diskBus(spec); bus != v1.DiskBusSCSI && bus != v1.DiskBusVirtio {
		return nil, fmt.Errorf("disk %s: a disk on the bus %s cannot be added to a running machine; use scsi or virtio", name, bus)
	}
	if !hotplug(vmi) {
		return nil, fmt.Errorf("disk %s: spec.domain.devices.disableHotplug is set; restart the machine with the disk", name)
	}
	if diskBus(spec) == v1.DiskBusVirtio && requested(vmi.Spec.Domain.Devices.UseVirtioTransitional) {
		return nil, fmt.Errorf("disk %s: an old virtio device (useVirtioTransitional) cannot be added to a running machine; use the bus scsi", name)
	}
	if requested(spec.DedicatedIOThread) {
		return nil, fmt.Errorf("disk %s: dedicatedIOThread cannot be given to a running machine; leave it out or restart", name)
	}
	out, err := disk(vmi, spec, source)
	if err != nil {
		return nil, err
	}
	letters := targets{}
	for out.Target.Dev == "" || slices.Contains(taken, out.Target.Dev) {
		out.Target.Dev = letters.next(diskBus(spec))
	}
	return out, nil
}

func diskNamed(vmi *v1.VirtualMachineInstance, name string) *v1.Disk {
	for i := range vmi.Spec.Domain.Devices.Disks {
		if vmi.Spec.Domain.Devices.Disks[i].Name == name {
			return &vmi.Spec.Domain.Devices.Disks[i]
		}
	}
	return nil
}
