package domain

import (
	"fmt"

	v1 "kubevirt.io/api/core/v1"
	"libvirt.org/go/libvirtxml"
)

// lun hands the guest a SCSI device as it is: the guest's commands go to the device
// itself. That takes a block device, and nothing between it and the guest.
func lun(spec *v1.Disk, source Disk, out *libvirtxml.DomainDisk) error {
	if !source.Block {
		return fmt.Errorf("disk %s: a lun needs a claim with volumeMode Block; use disk, or such a claim", spec.Name)
	}
	if spec.LUN.Reservation {
		return fmt.Errorf("disk %s: lun.reservation is not supported yet; remove it", spec.Name)
	}
	if spec.Serial != "" {
		return fmt.Errorf("disk %s: a lun has its device's serial number; remove serial", spec.Name)
	}
	out.Device = "lun"
	out.Driver.Discard = "" // the device's own affair
	if spec.LUN.ReadOnly {
		out.ReadOnly = &libvirtxml.DomainDiskReadOnly{}
	}
	return nil
}
