// Package bindmount shows an open file or directory at another path, as the node's
// kubelet asks for it, and takes it away again. Every step can be repeated.
package bindmount

import (
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"
)

// Mount shows source at target, which is made when it is missing: a directory for a
// directory, an empty file for anything else. When source is there already nothing happens;
// another mount in its place gives way.
func Mount(source *os.File, target string, readOnly bool) error {
	want, err := source.Stat()
	if err != nil {
		return fmt.Errorf("reading %s: %w", source.Name(), err)
	}
	if err := prepare(target, want.IsDir()); err != nil {
		return err
	}
	if mounted, err := At(target); err != nil {
		return err
	} else if mounted {
		got, err := os.Lstat(target)
		if err == nil && os.SameFile(want, got) && isReadOnly(target) == readOnly {
			return nil
		}
		if err := unmountAll(target); err != nil {
			return err
		}
	}
	from := fmt.Sprintf("/proc/self/fd/%d", source.Fd())
	if err := unix.Mount(from, target, "", unix.MS_BIND, ""); err != nil {
		return fmt.Errorf("binding %s to %s: %w", source.Name(), target, err)
	}
	if !readOnly {
		return nil
	}
	if err := makeReadOnly(target); err != nil {
		return errors.Join(err, unmountAll(target))
	}
	return nil
}

// Unmount takes away what is mounted at target and removes target, an empty directory
// or a file. A target that is not there is no error.
func Unmount(target string) error {
	if err := unmountAll(target); err != nil {
		return err
	}
	if err := os.Remove(target); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("removing %s: %w", target, err)
	}
	return nil
}

// At tells whether something is mounted at path.
func At(path string) (bool, error) {
	var stat unix.Statx_t
	err := unix.Statx(unix.AT_FDCWD, path, unix.AT_SYMLINK_NOFOLLOW|unix.AT_NO_AUTOMOUNT, 0, &stat)
	if errors.Is(err, unix.ENOENT) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("reading the mount at %s: %w", path, err)
	}
	return stat.Attributes&unix.STATX_ATTR_MOUNT_ROOT != 0, nil
}

func prepare(target string, dir bool) error {
	info, err := os.Lstat(target)
	switch {
	case err == nil && info.Mode()&fs.ModeSymlink != 0:
		return fmt.Errorf("mounting at %s: it is a symbolic link", target)
	case err == nil:
		return nil
	case !errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("reading %s: %w", target, err)
	case dir:
		if err := os.Mkdir(target, 0o750); err != nil {
			return fmt.Errorf("making %s: %w", target, err)
		}
		return nil
	}
	file, err := os.OpenFile(target, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("making %s: %w", target, err)
	}
	if err := file.Close(); err != nil {
		return fmt.Errorf("making %s: %w", target, err)
	}
	return nil
}

// unmountAll unmounts until nothing is mounted at target. A busy mount is detached: it
// ends with its last user, and nobody new finds it.
func unmountAll(target string) error {
	for {
		mounted, err := At(target)
		if err != nil || !mounted {
			return err
		}
		err = unix.Unmount(target, unix.UMOUNT_NOFOLLOW)
		if errors.Is(err, unix.EBUSY) {
			err = unix.Unmount(target, unix.UMOUNT_NOFOLLOW|unix.MNT_DETACH)
		}
		if err != nil {
			return fmt.Errorf("unmounting %s: %w", target, err)
		}
	}
}

func isReadOnly(target string) bool {
	var stat unix.Statfs_t
	return unix.Statfs(target, &stat) == nil && stat.Flags&unix.ST_RDONLY != 0
}

// makeReadOnly remounts with the mount's own flags, of which the kernel lets none go.
func makeReadOnly(target string) error {
	var stat unix.Statfs_t
	if err := unix.Statfs(target, &stat); err != nil {
		return fmt.Errorf("reading the mount at %s: %w", target, err)
	}
	flags := uintptr(unix.MS_BIND | unix.MS_REMOUNT | unix.MS_RDONLY)
	for bit, flag := range map[int64]uintptr{
		unix.ST_NOSUID: unix.MS_NOSUID, unix.ST_NODEV: unix.MS_NODEV, unix.ST_NOEXEC: unix.MS_NOEXEC,
		unix.ST_NOATIME: unix.MS_NOATIME, unix.ST_NODIRATIME: unix.MS_NODIRATIME, unix.ST_RELATIME: unix.MS_RELATIME,
	} {
		if stat.Flags&bit != 0 {
			flags |= flag
		}
	}
	if err := unix.Mount("", target, "", flags, ""); err != nil {
		return fmt.Errorf("making the mount at %s read-only: %w", target, err)
	}
	return nil
}

// Elsewhere returns the mount points below dir, other than target, that show source.
func Elsewhere(source *os.File, dir, target string) ([]string, error) {
	want, err := source.Stat()
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", source.Name(), err)
	}
	mounts, err := mountinfo.GetMounts(mountinfo.PrefixFilter(dir))
	if err != nil {
		return nil, fmt.Errorf("reading the mounts below %s: %w", dir, err)
	}
	var found []string
	for _, mount := range mounts {
		got, err := os.Lstat(mount.Mountpoint)
		if err == nil && mount.Mountpoint != target && os.SameFile(want, got) {
			found = append(found, mount.Mountpoint)
		}
	}
	return found, nil
}
