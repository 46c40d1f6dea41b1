package reflink

import (
	"fmt"
	"io/fs"
	"os"
	"path"
	"syscall"

	"golang.org/x/sys/unix"
)

// node makes the device node or pipe name of dst as it is in src.
func (c *treeCopy) node(name string, info fs.FileInfo) error {
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return fmt.Errorf("copying node %s: its numbers are unknown", name)
	}
	parent, err := c.dst.OpenFile(path.Dir(name), os.O_RDONLY|unix.O_DIRECTORY, 0)
	if err != nil {
		return fmt.Errorf("opening the directory of %s: %w", name, err)
	}
	defer parent.Close()
	fd, base := int(parent.Fd()), path.Base(name)
	if err := unix.Mknodat(fd, base, stat.Mode, int(stat.Rdev)); err != nil {
		return fmt.Errorf("making node %s: %w", name, err)
	}
	if err := unix.Fchownat(fd, base, int(stat.Uid), int(stat.Gid), unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return fmt.Errorf("owning node %s: %w", name, err)
	}
	if err := c.dst.Chmod(name, info.Mode()); err != nil {
		return fmt.Errorf("setting the mode of node %s: %w", name, err)
	}
	return nil
}
