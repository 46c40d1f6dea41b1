package disks

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
	v1 "kubevirt.io/api/core/v1"

	"github.com/slipway-vm/slipway/runtime/domain"
)

// Sizes of blocks that a guest's disk can have, in bytes. Systems read no disk whose logical ones are
// larger than a page of memory.
const (
	minBlock   = 512
	maxLogical = 4 << 10
	maxBlock   = 2 << 20
)

// matched are the block sizes of what the image at path is on, where the disk of vmi called name is to
// have the same; nil where it is not.
func matched(vmi *v1.VirtualMachineInstance, name, path string) (*domain.BlockSizes, error) {
	if !matches(vmi, name) {
		return nil, nil
	}
	file, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("opening volume %s for its block sizes: %w", name, err)
	}
	sizes, err := blockSizes(file)
	if err := errors.Join(err, file.Close()); err != nil {
		return nil, fmt.Errorf("reading the block sizes of volume %s: %w", name, err)
	}
	return sizes, nil
}

func matches(vmi *v1.VirtualMachineInstance, name string) bool {
	for i := range vmi.Spec.Domain.Devices.Disks {
		if disk := &vmi.Spec.Domain.Devices.Disks[i]; disk.Name == name {
			return domain.MatchesVolume(disk)
		}
	}
	return false
}

// blockSizes are those of a block device, or of the file system that a file is on.
func blockSizes(file *os.File) (*domain.BlockSizes, error) {
	info, err := file.Stat()
	if err != nil {
		return nil, fmt.Errorf("looking at the blocks of %s: %w", file.Name(), err)
	}
	fd := int(file.Fd())
	if info.Mode()&os.ModeDevice == 0 {
		var stat unix.Statfs_t
		if err := unix.Fstatfs(fd, &stat); err != nil {
			return nil, fmt.Errorf("looking at the file system of %s: %w", file.Name(), err)
		}
		return within(int(stat.Bsize), int(stat.Bsize)), nil
	}
	logical, err := unix.IoctlGetInt(fd, unix.BLKSSZGET)
	if err != nil {
		return nil, fmt.Errorf("asking %s for its logical blocks: %w", file.Name(), err)
	}
	physical, err := unix.IoctlGetInt(fd, unix.BLKPBSZGET)
	if err != nil {
		return nil, fmt.Errorf("asking %s for its physical blocks: %w", file.Name(), err)
	}
	return within(logical, physical), nil
}

// within brings sizes to what a guest's disk can have.
func within(logical, physical int) *domain.BlockSizes {
	logical = min(max(logical, minBlock), maxLogical)
	return &domain.BlockSizes{Logical: uint(logical), Physical: uint(min(max(physical, logical), maxBlock))}
}
