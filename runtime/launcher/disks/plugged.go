package disks

import (
	"errors"
	"fmt"
	"io"
	"os"

	v1 "kubevirt.io/api/core/v1"

	"github.com/slipway-vm/slipway/runtime/domain"
)

// Claim finds, or makes, the disk on the claim of volume, which the pod has at paths.
func Claim(paths Paths, vmi *v1.VirtualMachineInstance, volume *v1.Volume, capacity int64) (Disk, error) {
	disk, err := claim(paths, volume.Name, useOf(vmi, volume, capacity))
	if err == nil {
		disk.Blocks, err = matched(vmi, volume.Name, disk.Path)
	}
	return disk, err
}

// useOf is how vmi uses the claim of volume.
func useOf(vmi *v1.VirtualMachineInstance, volume *v1.Volume, capacity int64) use {
	source := volume.PersistentVolumeClaim
	return use{capacity: capacity, readOnly: source != nil && source.ReadOnly, fixed: onlyRead(vmi, volume.Name)}
}

// Plugged finds, or makes, the disk on a claim that another pod has, of which came is open: its folder
// or its device. That stays open for as long as QEMU may open what is in it. A device has no path
// here: this pod may not open it.
func Plugged(came *os.File, vmi *v1.VirtualMachineInstance, volume *v1.Volume, capacity int64) (Disk, error) {
	info, err := came.Stat()
	if err != nil {
		return Disk{}, fmt.Errorf("looking at the volume: %w", err)
	}
	switch kind := info.Mode() & os.ModeType; kind {
	case os.ModeDir:
		disk, err := fileClaim(fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), came.Fd()), useOf(vmi, volume, capacity))
		if err == nil {
			disk.Blocks, err = matched(vmi, volume.Name, disk.Path)
		}
		return disk, err
	case os.ModeDevice:
		size, err := came.Seek(0, io.SeekEnd)
		if err != nil {
			return Disk{}, fmt.Errorf("reading the size of the device: %w", err)
		}
		image := domain.Image{Format: domain.FormatRaw, Block: true}
		disk := Disk{Disk: domain.Disk{Image: image, DirectIO: true}, Size: size}
		if matches(vmi, volume.Name) {
			disk.Blocks, err = blockSizes(came)
		}
		return disk, err
	}
	return Disk{}, errors.New("the volume that came is neither a folder nor a block device")
}
