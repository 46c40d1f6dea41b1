package process

import (
	"errors"
	"fmt"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// kind is what a file must be to be opened.
type kind struct {
	mode uint32
	name string
}

var (
	kindFile  = kind{mode: unix.S_IFREG, name: "regular file"}
	kindBlock = kind{mode: unix.S_IFBLK, name: "block device"}
)

// reopen opens what is at path in the process's root with flags of open(2), when it is of the
// kind wanted. It is found by an open with the flags find, which does nothing to a device or a pipe,
// and what was looked at is what is opened: the link is that of the descriptor.
func (p *Process) reopen(path string, wanted kind, find uint64, flags int) (*os.File, error) {
	node, err := p.inRoot(path, find)
	if err != nil {
		return nil, err
	}
	defer node.Close()
	var stat unix.Stat_t
	if err := unix.Fstat(int(node.Fd()), &stat); err != nil {
		return nil, fmt.Errorf("looking at %s of process %d: %w", path, p.pid, err)
	}
	if stat.Mode&unix.S_IFMT != wanted.mode {
		return nil, fmt.Errorf("%s of process %d is no %s", path, p.pid, wanted.name)
	}
	fd, err := unix.Open("/proc/self/fd/"+strconv.Itoa(int(node.Fd())), flags|unix.O_CLOEXEC, 0)
	if errors.Is(err, unix.EBUSY) {
		err = ErrInUse
	}
	if err != nil {
		return nil, fmt.Errorf("opening %s of process %d: %w", path, p.pid, err)
	}
	return os.NewFile(uintptr(fd), path), nil
}
