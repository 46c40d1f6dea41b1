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
type InUseError struct{ Volume, Claim string }

func (e *InUseError) Error() string {
	return fmt.Sprintf("the disk of volume %s (claim %s) is in use by another virtual machine or process on this node, "+
		"which may be an earlier pod of this one that has not ended yet; the virtual machine starts when the disk is free", e.Volume, e.Claim)
}

// Leases are rights to disks that nobody else may write to meanwhile.
type Leases struct {
	// Devices are claims' block devices, open for writing and for nobody else who wants them so, by volume.
	Devices map[string]*os.File
}

// Lease makes sure that nobody else writes to the disks of the VMI's claims, but for those that
// are shared or only read. A file is watched over by QEMU's own locks, so it is enough to look at
// them. The locks of a block device are not seen from other pods, each of which has a device node
// of its own: the device is kept open exclusively. When one disk is in use, none is kept, and the
// error is an InUseError.
func Lease(paths Paths, vmi *v1.VirtualMachineInstance) (Leases, error) {
	leases := Leases{Devices: map[string]*os.File{}}
	for i := range vmi.Spec.Volumes {
		volume := &vmi.Spec.Volumes[i]
		claim := claimName(volume)
		if claim == "" || !exclusive(vmi, volume) {
			continue
		}
		device, err := lease(paths, volume.Name)
		if errors.Is(err, errInUse) {
			err = &InUseError{Volume: volume.Name, Claim: claim}
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

// claimName is the claim of a volume; empty for one on no claim.
func claimName(volume *v1.Volume) string {
	switch {
	case volume.PersistentVolumeClaim != nil:
		return volume.PersistentVolumeClaim.ClaimName
	case volume.DataVolume != nil:
		return volume.DataVolume.Name
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
			return !shared && disk.CDRom == nil && (disk.Disk == nil || !disk.Disk.ReadOnly)
		}
	}
	return false
}

var errInUse = errors.New("the disk is in use")

// lease returns the device of a Block claim, open exclusively, and for a Filesystem claim nothing.
func lease(paths Paths, volume string) (*os.File, error) {
	block := filepath.Join(paths.Blocks, volume)
	if isBlockDevice(block) {
		device, err := os.OpenFile(block, os.O_RDWR|unix.O_EXCL, 0)
		if errors.Is(err, unix.EBUSY) {
			return nil, errInUse
		}
		if err != nil {
			return nil, fmt.Errorf("opening the device of volume %s for this virtual machine alone: %w", volume, err)
		}
		return device, nil
	}
	file, err := os.OpenFile(filepath.Join(paths.Claims, volume, names.DiskFile), os.O_RDWR|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, nil //nolint:nilerr // Prepare makes it, or says what is wrong with it
	}
	defer file.Close()
	for _, at := range []int64{qemuWrites, qemuAloneInWrite} {
		lock := unix.Flock_t{Type: unix.F_WRLCK, Start: at, Len: 1}
		if err := unix.FcntlFlock(file.Fd(), unix.F_OFD_GETLK, &lock); err != nil {
			return nil, fmt.Errorf("looking for locks on the disk of volume %s: %w", volume, err)
		}
		if lock.Type != unix.F_UNLCK {
			return nil, errInUse
		}
	}
	return nil, nil
}
