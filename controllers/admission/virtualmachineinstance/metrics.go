package virtualmachineinstance

import (
	"k8s.io/apimachinery/pkg/util/validation/field"
	virtv1 "kubevirt.io/api/core/v1"
)

// downwardMetrics checks that the disks of metrics can be what they are: only read.
func downwardMetrics(spec *virtv1.VirtualMachineInstanceSpec, path *field.Path) field.ErrorList {
	tells := map[string]bool{}
	for _, volume := range spec.Volumes {
		tells[volume.Name] = volume.DownwardMetrics != nil
	}
	var errs field.ErrorList
	for i, disk := range spec.Domain.Devices.Disks {
		if tells[disk.Name] && disk.Disk != nil && (disk.Disk.Bus == "" || disk.Disk.Bus == virtv1.DiskBusSATA) {
			errs = append(errs, field.Invalid(path.Child("domain", "devices", "disks").Index(i).Child("disk", "bus"), disk.Disk.Bus,
				"a downwardMetrics volume is read-only, which a disk on the bus sata cannot be; use virtio"))
		}
	}
	return errs
}
