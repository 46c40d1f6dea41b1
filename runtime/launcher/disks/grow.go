package disks

import (
	"errors"
	"fmt"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// structures is the part of a file system of the claim's own, in percent, that is left to it:
// as much as importers leave.
const structures = 6

// grow makes the disk at path as large as its claim in dir lets it be, when that was expanded
// since, and returns the disk's size. The guest sees the new room behind its partitions.
func grow(dir, path string, disk os.FileInfo, capacity int64) (int64, error) {
	size, err := roomFor(dir, disk, capacity)
	if err != nil || size <= disk.Size() {
		return disk.Size(), err
	}
	file, err := os.OpenFile(path, os.O_WRONLY|unix.O_NOFOLLOW, 0)
	if err != nil {
		return 0, fmt.Errorf("growing the disk on the claim: %w", err)
	}
	if err := errors.Join(file.Truncate(size), file.Sync(), file.Close()); err != nil {
		return 0, fmt.Errorf("growing the disk on the claim: %w", err)
	}
	return size, nil
}

// roomFor is how large the disk may be, in bytes: the claim's capacity where that is a folder of a larger
// file system, else less by what a file system of its own needs, and no more than is free.
func roomFor(dir string, disk os.FileInfo, capacity int64) (int64, error) {
	var stat unix.Statfs_t
	if err := unix.Statfs(dir, &stat); err != nil {
		return 0, fmt.Errorf("reading the claim's free space: %w", err)
	}
	if int64(stat.Blocks)*stat.Bsize < capacity {
		capacity -= capacity / 100 * structures
	}
	free := int64(stat.Bavail) * stat.Bsize
	if have, ok := disk.Sys().(*syscall.Stat_t); ok {
		free += have.Blocks * 512
	}
	return min(free, capacity) / alignment * alignment, nil
}
