// Package beneath opens files below a folder whose content is another's, who may change it at any moment.
package beneath

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// attempts is how often a file is looked for while what is around it is moved: the kernel refuses a path with .. then.
const attempts = 64

// Open opens what is called name below root, with flags as of open(2). No link is followed, neither at the end of name nor
// on the way there: the error is unix.ELOOP. (An os.Root follows those that stay in it, with O_NOFOLLOW, too.) What leads
// out of root is unix.EXDEV.
func Open(root *os.Root, name string, flags int) (*os.File, error) {
	dir, err := root.OpenFile(".", unix.O_PATH|unix.O_DIRECTORY, 0)
	if err != nil {
		return nil, fmt.Errorf("opening folder %s: %w", root.Name(), err)
	}
	defer dir.Close()
	fd, err := openAt(int(dir.Fd()), name, flags)
	if err != nil {
		return nil, &fs.PathError{Op: "openat2", Path: name, Err: err}
	}
	return os.NewFile(uintptr(fd), filepath.Join(root.Name(), name)), nil
}

func openAt(dir int, name string, flags int) (fd int, err error) {
	how := unix.OpenHow{
		Flags:   uint64(flags) | unix.O_CLOEXEC,
		Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS,
	}
	for range attempts {
		fd, err = unix.Openat2(dir, name, &how)
		if !errors.Is(err, unix.EAGAIN) && !errors.Is(err, unix.EINTR) {
			break
		}
	}
	return fd, err //nolint:wrapcheck // the caller names it
}
