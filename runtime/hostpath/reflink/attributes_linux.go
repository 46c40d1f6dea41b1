package reflink

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

type owner struct{ uid, gid int }

func ownerOf(info fs.FileInfo) owner {
	if stat, ok := info.Sys().(*syscall.Stat_t); ok {
		return owner{int(stat.Uid), int(stat.Gid)}
	}
	return owner{}
}

// copyAttributes gives dst the owner, extended attributes, mode and times of src.
// The mode comes after the owner, whose change drops the setuid bits.
func copyAttributes(dst, src *os.File, info fs.FileInfo) error {
	who := ownerOf(info)
	if err := dst.Chown(who.uid, who.gid); err != nil {
		return fmt.Errorf("setting the owner: %w", err)
	}
	if err := copyXattrs(int(dst.Fd()), int(src.Fd())); err != nil {
		return err
	}
	if err := dst.Chmod(info.Mode()); err != nil {
		return fmt.Errorf("setting the mode: %w", err)
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return nil
	}
	times := []unix.Timeval{
		unix.NsecToTimeval(stat.Atim.Nano()), unix.NsecToTimeval(stat.Mtim.Nano()),
	}
	if err := unix.Futimes(int(dst.Fd()), times); err != nil {
		return fmt.Errorf("setting the times: %w", err)
	}
	return nil
}

// copyXattrs copies what attributes the target's file system takes.
func copyXattrs(dst, src int) error {
	names, err := listXattrs(src)
	if err != nil {
		return err
	}
	for _, name := range names {
		value, err := readXattr(src, name)
		if errors.Is(err, unix.ENODATA) {
			continue
		}
		if err != nil {
			return err
		}
		err = unix.Fsetxattr(dst, name, value, 0)
		if err != nil && !errors.Is(err, unix.EOPNOTSUPP) {
			return fmt.Errorf("setting attribute %s: %w", name, err)
		}
	}
	return nil
}

func listXattrs(fd int) ([]string, error) {
	buffer := make([]byte, 64<<10) // the kernel's limit
	n, err := unix.Flistxattr(fd, buffer)
	if errors.Is(err, unix.EOPNOTSUPP) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("listing attributes: %w", err)
	}
	var names []string
	for name := range bytes.SplitSeq(buffer[:n], []byte{0}) {
		if len(name) > 0 {
			names = append(names, string(name))
		}
	}
	return names, nil
}

func readXattr(fd int, name string) ([]byte, error) {
	buffer := make([]byte, 64<<10) // the kernel's limit
	n, err := unix.Fgetxattr(fd, name, buffer)
	if err != nil {
		return nil, fmt.Errorf("reading attribute %s: %w", name, err)
	}
	return buffer[:n], nil
}
