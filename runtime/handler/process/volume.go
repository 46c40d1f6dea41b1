package process

import (
	"errors"
	"fmt"
	"os"
	"path"

	"golang.org/x/sys/unix"
)

// OpenDirectory opens the directory at path as the process sees it under its own root, to
// look up what is in it; symbolic links stay within that root.
func (p *Process) OpenDirectory(path string) (*os.File, error) {
	return p.inRoot(path, unix.O_PATH|unix.O_DIRECTORY)
}

// OpenMount opens what is mounted at name, a relative path in the directory dir, as the process sees
// it under its own root, to look up what is in it. What is below dir is the pod's to change: no
// link there is followed, and what is no mount is an error.
func (p *Process) OpenMount(dir, name string) (*os.File, error) {
	base, err := p.OpenDirectory(dir)
	if err != nil {
		return nil, err
	}
	defer base.Close()
	how := unix.OpenHow{
		Flags:   unix.O_PATH | unix.O_DIRECTORY | unix.O_CLOEXEC,
		Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS,
	}
	folder, err := openAt(base, func(at int) (int, error) { return unix.Openat2(at, name, &how) })
	if err != nil {
		return nil, fmt.Errorf("opening %s of process %d: %w", path.Join(dir, name), p.pid, err)
	}
	if err := isMount(folder); err != nil {
		_ = folder.Close()
		return nil, fmt.Errorf("opening %s of process %d: %w", path.Join(dir, name), p.pid, err)
	}
	return folder, nil
}

// isMount says by an error that folder is not where something is mounted.
func isMount(folder *os.File) error {
	var stat unix.Statx_t
	if err := unix.Statx(int(folder.Fd()), "", unix.AT_EMPTY_PATH, 0, &stat); err != nil {
		return fmt.Errorf("asking whether it is a mount: %w", err)
	}
	if stat.Attributes_mask&unix.STATX_ATTR_MOUNT_ROOT == 0 {
		return errors.New("the kernel does not tell whether it is a mount; it must be Linux 5.8 or later")
	}
	if stat.Attributes&unix.STATX_ATTR_MOUNT_ROOT == 0 {
		return errors.New("nothing is mounted there")
	}
	return nil
}
