package disks

import (
	"errors"
	"fmt"
	"os"

	v1 "kubevirt.io/api/core/v1"
)

// Claim finds, or makes, the disk on the claim of volume, which the pod has at paths.
func Claim(paths Paths, volume *v1.Volume, capacity int64) (Disk, error) {
	return claim(paths, volume.Name, useOf(volume, capacity))
}

// useOf is how volume uses its claim.
func useOf(volume *v1.Volume, capacity int64) use {
	source := volume.PersistentVolumeClaim
	return use{capacity: capacity, readOnly: source != nil && source.ReadOnly}
}

// Plugged finds, or makes, the disk on a claim that is mounted in another pod, of which
// folder is open. It stays open for as long as QEMU may open what is in it.
func Plugged(folder *os.File, volume *v1.Volume, capacity int64) (Disk, error) {
	info, err := folder.Stat()
	if err != nil {
		return Disk{}, fmt.Errorf("looking at the volume: %w", err)
	}
	if !info.IsDir() {
		return Disk{}, errors.New("the volume that came is no folder; plug in a claim of volume mode Filesystem")
	}
	return fileClaim(fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), folder.Fd()), useOf(volume, capacity))
}
