// Package hostdisk makes the file of a hostDisk volume in a folder of the node.
package hostdisk

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// Sizes of files are a multiple of sector, those that became less than asked for of alignment, in bytes.
const (
	sector    = 512
	alignment = 1 << 20
)

// mode of a file that is made: QEMU's user and group have it.
const mode = 0o660

// File is what to make.
type File struct {
	// Name is that of the file in its folder.
	Name string
	// Capacity is the size asked for in bytes.
	Capacity int64
	// Owner is the uid and gid that the file gets.
	Owner int
	// Limits are for where the file system has less than Capacity.
	Limits Limits
}

// Make makes file in folder, sparse, unless something of its name is there, which stays as it is
// whatever it is. It returns the size in bytes of what it made, 0 for nothing. No link is followed.
func Make(folder *os.File, file File) (int64, error) {
	at := int(folder.Fd())
	var stat unix.Stat_t
	err := unix.Fstatat(at, file.Name, &stat, unix.AT_SYMLINK_NOFOLLOW)
	if err == nil {
		return 0, nil
	}
	if !errors.Is(err, unix.ENOENT) {
		return 0, fmt.Errorf("looking for %s: %w", file.Name, err)
	}
	size, err := file.size(folder)
	if err != nil {
		return 0, err
	}
	err = file.makeWhole(at, size)
	if errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.EISDIR) {
		err = file.makeInPlace(at, size)
	}
	if errors.Is(err, unix.EEXIST) { // another virtual machine's pod has the folder, too
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("making %s of %d bytes: %w", file.Name, size, err)
	}
	return size, nil
}

// size is what the file gets of its capacity.
func (f File) size(folder *os.File) (int64, error) {
	if f.Capacity <= 0 {
		return 0, fmt.Errorf("there is no %s, and no capacity to make it with; set hostDisk.capacity", f.Name)
	}
	var stat unix.Statfs_t
	if err := unix.Fstatfs(int(folder.Fd()), &stat); err != nil {
		return 0, fmt.Errorf("reading the free space for %s: %w", f.Name, err)
	}
	return fit(f, f.Limits.available(stat))
}

// fit is what of the capacity is available, in bytes.
func fit(f File, available int64) (int64, error) {
	if f.Capacity <= available {
		return (f.Capacity + sector - 1) / sector * sector, nil
	}
	if f.Capacity-f.Capacity/100*f.Limits.Tolerance > available {
		return 0, fmt.Errorf("unable to create %s, not enough space, demanded size %d B is bigger than available space %d B, also after taking %d %% toleration into account; free some, or ask for less",
			f.Name, f.Capacity, available, f.Limits.Tolerance)
	}
	return max(available/alignment*alignment, sector), nil
}

// makeWhole makes the file such that it has its name only once it has all else. It fails with
// EOPNOTSUPP, or EISDIR, where the file system has no files without a name.
func (f File) makeWhole(at int, size int64) error {
	fd, err := unix.Openat(at, ".", unix.O_TMPFILE|unix.O_WRONLY|unix.O_CLOEXEC, mode)
	if err != nil {
		return fmt.Errorf("opening a file without a name: %w", err)
	}
	defer unix.Close(fd)
	if err := f.complete(fd, size); err != nil {
		return err
	}
	if err := unix.Linkat(unix.AT_FDCWD, fmt.Sprintf("/proc/self/fd/%d", fd), at, f.Name, unix.AT_SYMLINK_FOLLOW); err != nil {
		return fmt.Errorf("naming it: %w", err)
	}
	return nil
}

func (f File) makeInPlace(at int, size int64) error {
	fd, err := unix.Openat(at, f.Name, unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW|unix.O_WRONLY|unix.O_CLOEXEC, mode)
	if err != nil {
		return fmt.Errorf("opening it: %w", err)
	}
	defer unix.Close(fd)
	if err := f.complete(fd, size); err != nil {
		return errors.Join(err, unix.Unlinkat(at, f.Name, 0))
	}
	return nil
}

// complete gives a new file its size, its mode and its owner.
func (f File) complete(fd int, size int64) error {
	if err := unix.Ftruncate(fd, size); err != nil {
		return fmt.Errorf("sizing it: %w", err)
	}
	if err := errors.Join(unix.Fchmod(fd, mode), unix.Fchown(fd, f.Owner, f.Owner)); err != nil {
		return fmt.Errorf("giving it to uid %d: %w", f.Owner, err)
	}
	return nil
}
