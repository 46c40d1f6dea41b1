package backup

import (
	virtv1 "kubevirt.io/api/core/v1"
)

// Volumes are the names of the volumes that are in a backup, in the order of spec: the disks that are the
// machine's own. Those are on claims, which it may write to, and which nobody else does meanwhile, for no machine
// knows what others change.
func Volumes(spec *virtv1.VirtualMachineInstanceSpec) []string {
	own := map[string]bool{}
	for i := range spec.Domain.Devices.Disks {
		if disk := &spec.Domain.Devices.Disks[i]; ownDisk(disk) {
			own[disk.Name] = true
		}
	}
	var found []string
	for i := range spec.Volumes {
		if volume := &spec.Volumes[i]; own[volume.Name] && onClaim(volume) {
			found = append(found, volume.Name)
		}
	}
	return found
}

// ownDisk says whether the guest has the device for itself and may write to it. A device that says
// nothing of what it is, is a disk.
func ownDisk(disk *virtv1.Disk) bool {
	if disk.CDRom != nil || disk.LUN != nil || disk.Shareable != nil && *disk.Shareable {
		return false
	}
	return disk.Disk == nil || !disk.Disk.ReadOnly
}

func onClaim(volume *virtv1.Volume) bool {
	claim := volume.PersistentVolumeClaim
	return volume.DataVolume != nil || claim != nil && !claim.ReadOnly
}

// Tracked says whether what is written to the disks of a machine of which that is said is known.
func Tracked(status *virtv1.ChangedBlockTrackingStatus) bool {
	return status != nil && status.State == virtv1.ChangedBlockTrackingEnabled
}

// StatusOf is what vmi's status says of its last backup; nil for nothing.
func StatusOf(vmi *virtv1.VirtualMachineInstance) *virtv1.VirtualMachineInstanceBackupStatus {
	if vmi.Status.ChangedBlockTracking == nil {
		return nil
	}
	return vmi.Status.ChangedBlockTracking.BackupStatus
}
