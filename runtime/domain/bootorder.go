package domain

import (
	v1 "kubevirt.io/api/core/v1"
	"libvirt.org/go/libvirtxml"
)

// bootSequence maps the names of disks to their place in the boot order.
type bootSequence map[string]uint

// bootOrders takes the orders that the VMI gives. Where it gives none at all, disks
// are tried in the order of the spec, then CD-ROMs; a disk that is data by its nature
// (a disc of files, an empty disk) is not tried.
func bootOrders(vmi *v1.VirtualMachineInstance) bootSequence {
	orders := bootSequence{}
	for _, nic := range vmi.Spec.Domain.Devices.Interfaces {
		if nic.BootOrder != nil {
			orders["interface/"+nic.Name] = *nic.BootOrder
		}
	}
	for i := range vmi.Spec.Domain.Devices.Disks {
		if disk := &vmi.Spec.Domain.Devices.Disks[i]; disk.BootOrder != nil {
			orders[disk.Name] = *disk.BootOrder
		}
	}
	if len(orders) > 0 {
		return orders
	}
	data := dataVolumes(vmi)
	for _, cdroms := range []bool{false, true} {
		for i := range vmi.Spec.Domain.Devices.Disks {
			disk := &vmi.Spec.Domain.Devices.Disks[i]
			if data[disk.Name] || cdroms != (disk.CDRom != nil) {
				continue
			}
			orders[disk.Name] = uint(len(orders) + 1)
		}
	}
	return orders
}

func dataVolumes(vmi *v1.VirtualMachineInstance) map[string]bool {
	data := map[string]bool{}
	for i := range vmi.Spec.Volumes {
		volume := &vmi.Spec.Volumes[i]
		data[volume.Name] = volume.EmptyDisk != nil || ofFiles(volume)
	}
	return data
}

// ofFiles says whether a volume is a disc that is made of files.
func ofFiles(volume *v1.Volume) bool {
	return volume.CloudInitNoCloud != nil || volume.CloudInitConfigDrive != nil || volume.Sysprep != nil ||
		volume.ConfigMap != nil || volume.Secret != nil || volume.DownwardAPI != nil || volume.ServiceAccount != nil
}

func (b bootSequence) of(disk string) *libvirtxml.DomainDeviceBoot {
	if order, ok := b[disk]; ok {
		return &libvirtxml.DomainDeviceBoot{Order: order}
	}
	return nil
}
