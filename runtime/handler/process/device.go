package process

import (
	"errors"
	"fmt"
	"os"
	"path"

	"golang.org/x/sys/unix"
)

// ErrInUse says that a block device that somebody is to have alone is not free.
var ErrInUse = errors.New("the device is in use")

// OpenBlock opens the block device at path in the process's root with flags of open(2). What is no
// block device is not opened; a link in its place is not followed. With O_EXCL the device is
// ErrInUse while anybody else on the node has it so, by whatever path.
func (p *Process) OpenBlock(path string, flags int) (*os.File, error) {
	return p.reopen(path, kindBlock, unix.O_PATH|unix.O_NOFOLLOW, flags)
}

// GiveFolder makes the folder at name, which is in a folder of the process's root that is not its
// own to change, unless it is there, and gives it to uid. It is refused where the folder above is
// the node's.
func (p *Process) GiveFolder(name string, uid int) error {
	above, err := p.inRoot(path.Dir(name), unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW)
	if err != nil {
		return err
	}
	defer above.Close()
	var stat, own unix.Stat_t
	if err := unix.Fstat(int(above.Fd()), &stat); err != nil {
		return fmt.Errorf("looking at %s of process %d: %w", path.Dir(name), p.pid, err)
	}
	if err := unix.Stat(path.Dir(name), &own); err == nil && own.Dev == stat.Dev && own.Ino == stat.Ino {
		return fmt.Errorf("making %s of process %d: %w", name, p.pid, ErrSharedDevice)
	}
	if err := unix.Mkdirat(int(above.Fd()), path.Base(name), 0o700); err != nil && !errors.Is(err, unix.EEXIST) {
		return fmt.Errorf("making %s of process %d: %w", name, p.pid, err)
	}
	folder, err := unix.Openat(int(above.Fd()), path.Base(name), unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("opening %s of process %d: %w", name, p.pid, err)
	}
	defer unix.Close(folder)
	if err := unix.Fchown(folder, uid, uid); err != nil {
		return fmt.Errorf("giving %s of process %d to uid %d: %w", name, p.pid, uid, err)
	}
	return nil
}
