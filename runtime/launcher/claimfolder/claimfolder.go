// Package claimfolder works in folders of claims that are mounted in other pods, of which only the folder is
// open. Links in them are never followed: users and guests made what is there.
package claimfolder

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// Reopen opens the folder anew, for what came may be open only to look things up in.
func Reopen(folder *os.File) (*os.File, error) {
	fd, err := unix.Openat(int(folder.Fd()), ".", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("opening the folder of the claim: %w", err)
	}
	return os.NewFile(uintptr(fd), folder.Name()), nil
}

// Enter opens the folder called name in folder.
func Enter(folder *os.File, name string) (*os.File, error) {
	fd, err := unix.Openat(int(folder.Fd()), name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("opening the folder %s on the claim: %w", name, err)
	}
	return os.NewFile(uintptr(fd), name), nil
}

// Make makes the folder called name in folder. It may be there.
func Make(folder *os.File, name string) error {
	if err := unix.Mkdirat(int(folder.Fd()), name, 0o770); err != nil && !errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("making the folder %s on the claim: %w", name, err)
	}
	return nil
}

// Create makes the file called name in folder, which must not be there, and opens it by flags, such as unix.O_RDWR.
func Create(folder *os.File, name string, flags int, mode os.FileMode) (*os.File, error) {
	flags |= unix.O_CREAT | unix.O_EXCL | unix.O_NOFOLLOW | unix.O_CLOEXEC
	fd, err := unix.Openat(int(folder.Fd()), name, flags, uint32(mode.Perm()))
	if err != nil {
		return nil, fmt.Errorf("making the file %s on the claim: %w", name, err)
	}
	return os.NewFile(uintptr(fd), name), nil
}

// Remove removes the file called name in folder. It may be gone.
func Remove(folder *os.File, name string) error { return remove(folder, name, 0) }

// RemoveFolder removes the folder called name in folder, which must be empty. It may be gone.
func RemoveFolder(folder *os.File, name string) error { return remove(folder, name, unix.AT_REMOVEDIR) }

func remove(folder *os.File, name string, flags int) error {
	if err := unix.Unlinkat(int(folder.Fd()), name, flags); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("removing %s from the claim: %w", name, err)
	}
	return nil
}

// Exists says whether there is anything called name in folder.
func Exists(folder *os.File, name string) (bool, error) {
	var info unix.Stat_t
	err := unix.Fstatat(int(folder.Fd()), name, &info, unix.AT_SYMLINK_NOFOLLOW)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("looking for %s on the claim: %w", name, err)
	}
	return true, nil
}

// Rename gives what is called from in folder the name to, which nothing must have.
func Rename(folder *os.File, from, to string) error {
	fd := int(folder.Fd())
	err := unix.Renameat2(fd, from, fd, to, unix.RENAME_NOREPLACE)
	if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOSYS) { // a file system that cannot look and rename at once, such as NFS
		var there bool
		if there, err = Exists(folder, to); err == nil && there {
			err = fs.ErrExist
		}
		if err == nil {
			err = unix.Renameat(fd, from, fd, to)
		}
	}
	if err != nil {
		return fmt.Errorf("giving %s on the claim the name %s: %w", from, to, err)
	}
	return nil
}

// Free is how many bytes can be written to the file system that folder is on.
func Free(folder *os.File) (int64, error) {
	var info unix.Statfs_t
	if err := unix.Fstatfs(int(folder.Fd()), &info); err != nil {
		return 0, fmt.Errorf("looking for room on the claim: %w", err)
	}
	return int64(info.Bavail) * info.Bsize, nil //nolint:gosec // less than there is
}

// Named says whether name can be that of a file or folder, and is none that is hidden.
func Named(name string) bool {
	return name != "" && !strings.HasPrefix(name, ".") && !strings.ContainsRune(name, '/')
}
