package quota

import (
	"errors"
	"fmt"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Btrfs limits subvolumes instead of projects, by the quota group that each has, once quotas are enabled on the
// file system (btrfs quota enable). Source: the kernel's include/uapi/linux/btrfs.h.

// Errors of what cannot be limited: btrfs has no quotas on this file system, or a directory is no subvolume.
var (
	ErrNotEnabled  = errors.New("quotas are not enabled")
	ErrNoSubvolume = errors.New("it is no subvolume")
)

// rootInode is the number of a subvolume's own directory.
const rootInode = 256

// Requests of ioctl about subvolumes, and the flag that says that the most bytes that they refer to are set.
const (
	makeSubvolume  = 0x5000940e
	limitSubvolume = 0x8030942b
	maxReferred    = 1 << 0
)

// volumeArguments is the kernel's btrfs_ioctl_vol_args.
type volumeArguments struct {
	_    int64
	Name [4088]byte
}

// groupLimit is the kernel's btrfs_ioctl_qgroup_limit_args; the group 0 is that of the subvolume that is asked.
type groupLimit struct {
	Group, Flags, MaxReferred, MaxExclusive, ReservedReferred, ReservedExclusive uint64
}

// OnBtrfs tells whether an open file is on btrfs.
func OnBtrfs(file *os.File) (bool, error) {
	var stat unix.Statfs_t
	if err := unix.Fstatfs(int(file.Fd()), &stat); err != nil {
		return false, fmt.Errorf("reading the file system of %s: %w", file.Name(), err)
	}
	return stat.Type == unix.BTRFS_SUPER_MAGIC, nil
}

// attributeLimited marks the directory of a subvolume that was limited. Only root can write it.
const attributeLimited = "trusted.slipway.limited"

// IsLimited tells whether a directory is that of a subvolume that LimitSubvolume limited.
func IsLimited(dir *os.File) (bool, error) {
	_, err := unix.Fgetxattr(int(dir.Fd()), attributeLimited, nil)
	if errors.Is(err, unix.ENODATA) || errors.Is(err, unix.ENOTSUP) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("reading the attribute %s of %s: %w", attributeLimited, dir.Name(), err)
	}
	return true, nil
}

// MakeSubvolume makes an empty subvolume called name in dir, a directory on btrfs.
func MakeSubvolume(dir *os.File, name string) error {
	var wanted volumeArguments
	if len(name) >= len(wanted.Name) {
		return fmt.Errorf("making the subvolume %s: %w", name, unix.ENAMETOOLONG)
	}
	copy(wanted.Name[:], name)
	if err := request(dir, makeSubvolume, unsafe.Pointer(&wanted)); err != nil {
		return fmt.Errorf("making the subvolume %s: %w", name, err)
	}
	return nil
}

// LimitSubvolume lets the subvolume whose directory root is refer to that many bytes, shared blocks in full.
func LimitSubvolume(root *os.File, bytes int64) error {
	var stat unix.Stat_t
	if err := unix.Fstat(int(root.Fd()), &stat); err != nil {
		return fmt.Errorf("reading %s: %w", root.Name(), err)
	}
	// What is asked for of another directory would be done to the subvolume that it is in.
	if is, err := OnBtrfs(root); err != nil {
		return err
	} else if !is || stat.Ino != rootInode {
		return fmt.Errorf("limiting %s: %w", root.Name(), ErrNoSubvolume)
	}
	wanted := groupLimit{Flags: maxReferred, MaxReferred: uint64(bytes)}
	err := request(root, limitSubvolume, unsafe.Pointer(&wanted))
	if errors.Is(err, unix.ENOTCONN) {
		return fmt.Errorf("limiting the subvolume %s: %w", root.Name(), ErrNotEnabled)
	}
	if err != nil {
		return fmt.Errorf("limiting the subvolume %s to %d bytes: %w", root.Name(), bytes, err)
	}
	if err := unix.Fsetxattr(int(root.Fd()), attributeLimited, []byte("yes"), 0); err != nil {
		return fmt.Errorf("marking the subvolume %s as limited: %w", root.Name(), err)
	}
	return nil
}

func request(file *os.File, number uintptr, argument unsafe.Pointer) error {
	_, _, code := unix.Syscall(unix.SYS_IOCTL, file.Fd(), number, uintptr(argument))
	return asError(code)
}
