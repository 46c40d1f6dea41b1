package disks

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"golang.org/x/sys/unix"
	v1 "kubevirt.io/api/core/v1"

	"github.com/slipway-vm/slipway/internal/names"
)

// QEMU locks an image by single bytes of it: one for each thing that it does with the image, and
// one for each that it lets nobody else do. Two QEMUs that get in each other's way find out when
// they open the image, and the later one fails.
const (
	qemuWrites       = 101
	qemuAloneInWrite = 201
)

// InUseError says that somebody else on this node uses the disk of a volume.
type InUseError struct {
	// On is what the volume is on, such as "claim data".
	Volume, On string
}

func (e *InUseError) Error() string {
	return fmt.Sprintf("the disk of volume %s (%s) is in use by another virtual machine or process on this node, "+
		"which may be an earlier pod of this one that has not ended yet; the virtual machine starts when the disk is free", e.Volume, e.On)
}

// Leases are rights to disks that nobody else may write to meanwhile.
type Leases struct {
	// Devices are claims' block devices, open for writing and for nobody else who wants them so, by volume.
	Devices map[string]*os.File
}

// Lease makes sure that nobody else writes to the disks of the VMI's claims, and its files of the
// node, but for those that are shared or only read. A file is watched over by QEMU's own locks, so it is enough to look at
// them. The locks of a block device are not seen from other pods, each of which has a device node
// of its own: the device is kept open exclusively. When one disk is in use, none is kept, and the
// error is an InUseError.
func Lease(paths Paths, vmi *v1.VirtualMachineInstance) (Leases, error) {
	leases := Leases{Devices: map[string]*os.File{}}
	for i := range vmi.Spec.Volumes {
		volume := &vmi.Spec.Volumes[i]
		on := whereabouts(volume)
		if on == "" || !exclusive(vmi, volume) {
			continue
		}
		device, err := lease(paths, volume)
		if errors.Is(err, errInUse) {
			err = &InUseError{Volume: volume.Name, On: on}
		}
		if err != nil {
			leases.Close()
			return Leases{}, err
		}
		if device != nil {
			leases.Devices[volume.Name] = device
		}
	}
	return leases, nil
}

// Files are all of the devices.
func (l Leases) Files() []*os.File { return slices.Collect(maps.Values(l.Devices)) }

// Close gives the disks back.
func (l Leases) Close() {
	for _, device := range l.Devices {
		_ = device.Close() // nothing was written
	}
}

// whereabouts says what a volume is on that others may have, too; empty for one that is the pod's own.
func whereabouts(volume *v1.Volume) string {
	switch {
	case volume.PersistentVolumeClaim != nil:
		return "claim " + volume.PersistentVolumeClaim.ClaimName
	case volume.DataVolume != nil:
		return "claim " + volume.DataVolume.Name
	case volume.HostDisk != nil:
		return "file " + volume.HostDisk.Path + " of the node"
	}
	return ""
}

// exclusive says whether the VMI writes to the volume and wants to be alone in that.
func exclusive(vmi *v1.VirtualMachineInstance, volume *v1.Volume) bool {
	if source := volume.PersistentVolumeClaim; source != nil && source.ReadOnly {
		return false
	}
	for i := range vmi.Spec.Domain.Devices.Disks {
		disk := &vmi.Spec.Domain.Devices.Disks[i]
		if disk.Name == volume.Name {
			shared := disk.Shareable != nil && *disk.Shareable
			return !shared && !onlyRead(vmi, volume.Name)
		}
	}
	return false
}

// onlyRead says whether the VMI shows the volume as what its guest cannot write to.
func onlyRead(vmi *v1.VirtualMachineInstance, volume string) bool {
	for i := range vmi.Spec.Domain.Devices.Disks {
		if disk := &vmi.Spec.Domain.Devices.Disks[i]; disk.Name == volume {
			return disk.CDRom != nil || disk.Disk != nil && disk.Disk.ReadOnly
		}
	}
	return false
}

var errInUse = errors.New("the disk is in use")

// lease returns the device of a Block claim, open exclusively, and for a file nothing.
func lease(paths Paths, volume *v1.Volume) (*os.File, error) {
	if volume.HostDisk != nil {
		return nil, unlocked(hostDiskPath(paths, volume), volume.Name)
	}
	block := filepath.Join(paths.Blocks, volume.Name)
	if isBlockDevice(block) {
		device, err := os.OpenFile(block, os.O_RDWR|unix.O_EXCL, 0)
		if errors.Is(err, unix.EBUSY) {
			return nil, errInUse
		}
		if err != nil {
			return nil, fmt.Errorf("opening the device of volume %s for this virtual machine alone: %w", volume.Name, err)
		}
		return device, nil
	}
	return nil, unlocked(filepath.Join(paths.Claims, volume.Name, names.DiskFile), volume.Name)
}

// unlocked says by errInUse that a QEMU writes to the image at path.
func unlocked(path, volume string) error {
	file, err := os.OpenFile(path, os.O_RDWR|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil //nolint:nilerr // Prepare makes it, or says what is wrong with it
	}
	defer file.Close()
	for _, at := range []int64{qemuWrites, qemuAloneInWrite} {
		lock := unix.Flock_t{Type: unix.F_WRLCK, Start: at, Len: 1}
		if err := unix.FcntlFlock(file.Fd(), unix.F_OFD_GETLK, &lock); err != nil {
			return fmt.Errorf("looking for locks on the disk of volume %s: %w", volume, err)
		}
		if lock.Type != unix.F_UNLCK {
			return errInUse
		}
	}
	return nil
}
