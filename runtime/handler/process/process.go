// Package process holds on to a process of a pod through /proc, and reaches into the
// pod by it: which pod it belongs to, its network namespace, its files and devices.
//
// It needs the node's process namespace (hostPID). Namespaces are found through the
// pod's own processes only, never through /proc/1, which may be closed even to root.
package process

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
	"k8s.io/apimachinery/pkg/types"
)

// maxFile bounds what is read from a file of a pod.
const maxFile = 64 << 10

// Process is a process that stays the same one even when its number is used again:
// once it has ended, every method fails.
type Process struct {
	pid int
	dir *os.File // /proc/<pid>, O_PATH
}

// Open holds on to the process with number pid.
func Open(pid int) (*Process, error) {
	path := "/proc/" + strconv.Itoa(pid)
	fd, err := unix.Open(path, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("opening process %d: %w", pid, err)
	}
	return &Process{pid: pid, dir: os.NewFile(uintptr(fd), path)}, nil
}

// PID is the process's number on the node.
func (p *Process) PID() int { return p.pid }

// Close lets go of the process.
func (p *Process) Close() error {
	if err := p.dir.Close(); err != nil {
		return fmt.Errorf("letting go of process %d: %w", p.pid, err)
	}
	return nil
}

// BelongsTo says whether one of the process's cgroups is of the pod with uid.
func (p *Process) BelongsTo(uid types.UID) (bool, error) {
	data, err := p.read("cgroup")
	if err != nil {
		return false, err
	}
	return inPod(string(data), uid), nil
}

// NetworkNamespace opens the namespace that the process is in.
func (p *Process) NetworkNamespace() (*os.File, error) {
	return p.open("ns/net", unix.O_RDONLY)
}

// ReadFile reads the beginning of a file, at most 64 KiB, as the process sees it under
// its own root; symbolic links stay within that root. What is no regular file is not opened.
func (p *Process) ReadFile(path string) ([]byte, error) {
	file, err := p.reopen(path, kindFile, unix.O_PATH, unix.O_RDONLY)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	data, err := io.ReadAll(io.LimitReader(file, maxFile))
	if err != nil {
		return nil, fmt.Errorf("reading %s of process %d: %w", path, p.pid, err)
	}
	return data, nil
}

// ErrSharedDevice says that a container's device node is the node's own: giving it away
// would give the node's away.
var ErrSharedDevice = errors.New("the container shares the node's device file")

// GiveDevice makes uid the owner (and group) of the device file at path in the
// process's root. It reports false when there is no such file. A file that is not a
// device, or is the node's own device file, is refused.
func (p *Process) GiveDevice(path string, uid int) (bool, error) {
	file, err := p.inRoot(path, unix.O_PATH|unix.O_NOFOLLOW)
	if errors.Is(err, unix.ENOENT) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	defer file.Close()
	var stat unix.Stat_t
	if err := unix.Fstat(int(file.Fd()), &stat); err != nil {
		return false, fmt.Errorf("looking at %s of process %d: %w", path, p.pid, err)
	}
	if kind := stat.Mode & unix.S_IFMT; kind != unix.S_IFCHR && kind != unix.S_IFBLK {
		return false, fmt.Errorf("%s of process %d is not a device", path, p.pid)
	}
	if int(stat.Uid) == uid {
		return true, nil
	}
	var own unix.Stat_t
	if err := unix.Lstat(path, &own); err == nil && own.Dev == stat.Dev && own.Ino == stat.Ino {
		return false, fmt.Errorf("giving %s of process %d to uid %d: %w", path, p.pid, uid, ErrSharedDevice)
	}
	if err := unix.Fchownat(int(file.Fd()), "", uid, uid, unix.AT_EMPTY_PATH); err != nil {
		return false, fmt.Errorf("giving %s of process %d to uid %d: %w", path, p.pid, uid, err)
	}
	return true, nil
}

// inRoot opens path under the process's root, never leaving it.
func (p *Process) inRoot(path string, flags uint64) (*os.File, error) {
	root, err := p.open("root", unix.O_PATH|unix.O_DIRECTORY)
	if err != nil {
		return nil, err
	}
	defer root.Close()
	how := unix.OpenHow{Flags: flags | unix.O_CLOEXEC, Resolve: unix.RESOLVE_IN_ROOT | unix.RESOLVE_NO_MAGICLINKS}
	file, err := openAt(root, func(dir int) (int, error) {
		return unix.Openat2(dir, strings.TrimPrefix(path, "/"), &how)
	})
	if err != nil {
		return nil, fmt.Errorf("opening %s of process %d: %w", path, p.pid, err)
	}
	return file, nil
}

func (p *Process) open(name string, flags int) (*os.File, error) {
	file, err := openAt(p.dir, func(dir int) (int, error) {
		return unix.Openat(dir, name, flags|unix.O_CLOEXEC, 0)
	})
	if err != nil {
		return nil, fmt.Errorf("opening %s of process %d: %w", name, p.pid, err)
	}
	return file, nil
}

// openAt opens a file relative to dir, which stays open meanwhile even when another
// goroutine closes it.
func openAt(dir *os.File, open func(dir int) (int, error)) (*os.File, error) {
	raw, err := dir.SyscallConn()
	if err != nil {
		return nil, fmt.Errorf("reaching %s: %w", dir.Name(), err)
	}
	var fd int
	var openErr error
	if err := raw.Control(func(at uintptr) { fd, openErr = open(int(at)) }); err != nil {
		return nil, fmt.Errorf("reaching %s: %w", dir.Name(), err)
	}
	if openErr != nil {
		return nil, openErr
	}
	return os.NewFile(uintptr(fd), dir.Name()), nil
}

func (p *Process) read(name string) ([]byte, error) {
	file, err := p.open(name, unix.O_RDONLY)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	data, err := io.ReadAll(io.LimitReader(file, maxFile))
	if err != nil {
		return nil, fmt.Errorf("reading %s of process %d: %w", name, p.pid, err)
	}
	return data, nil
}
