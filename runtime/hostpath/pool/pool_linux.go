// Package pool keeps volumes and their snapshots in a directory of the node.
//
// A volume is the directory <pool>/<name>, or for a block volume the sparse file of that
// name. All else is in <pool>/.slipway: records of what was asked for, snapshots, what is
// being made (new) and what is being removed (trash). A volume is made in new and
// appears by a rename, complete and synced; it disappears by a rename, too. So a crash at
// any point leaves no half volume, only rests that Sweep removes. In a pool on a claim, the
// pod that holds the claim has the empty folder hold there.
//
// Nothing here follows a symbolic link out of the pool, whatever a volume's user puts into it.
package pool

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"regexp"
	"strings"

	"golang.org/x/sys/unix"
)

// Errors that callers tell apart.
var (
	// ErrMissing: the pool's directory is not on this node.
	ErrMissing = errors.New("the directory does not exist on this node")
	// ErrNotFound: the pool has no such volume or snapshot.
	ErrNotFound = errors.New("not found")
	// ErrDiffers: it exists, made for another request.
	ErrDiffers = errors.New("it exists already and differs from what is asked for")
	// ErrInUse: the source was written to while it was copied.
	ErrInUse = errors.New("stop what writes to it or have the guest's file systems frozen, or use a pool on XFS with reflinks or Btrfs, which copy at once")
	// ErrTooSmall: the copy would be smaller than its source.
	ErrTooSmall = errors.New("smaller than its source")
	// ErrName: the name cannot be a volume's or snapshot's.
	ErrName = errors.New("the name may have letters, digits, '.', '_' and '-', must begin with a letter or digit and have at most 128 characters")
)

// The pool's own folders. Names of volumes cannot begin with a dot.
const (
	ownDir       = ".slipway"
	newDir       = ownDir + "/new"
	trashDir     = ownDir + "/trash"
	snapshotDir  = ownDir + "/snapshots"
	volumeRecDir = ownDir + "/volumes"
	snapRecDir   = ownDir + "/snapshot-records"
)

var validName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$`)

// Pool is an open pool. Close it soon: it keeps the file system in use.
type Pool struct {
	name, path string
	root       *os.Root
	stepped    func() // hears of each step that a crash does not undo; nil but in tests of crashes
}

// Open opens the pool called name, whose directory is dir of the file system that is
// mounted at hostRoot ("/" on the node itself). Links in dir are the node's.
func Open(hostRoot, name, dir string) (*Pool, error) {
	if !path.IsAbs(dir) || path.Clean(dir) != dir || dir == "/" {
		return nil, fmt.Errorf("opening pool %s: its path %q is not absolute and clean: correct it in the HostPathProvisioner", name, dir)
	}
	base, err := unix.Open(hostRoot, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("opening the node's root %s: %w", hostRoot, err)
	}
	defer unix.Close(base) //nolint:errcheck // nothing was written
	fd, err := unix.Openat2(base, strings.TrimPrefix(dir, "/"), &unix.OpenHow{
		Flags:   unix.O_PATH | unix.O_DIRECTORY | unix.O_CLOEXEC,
		Resolve: unix.RESOLVE_IN_ROOT | unix.RESOLVE_NO_MAGICLINKS,
	})
	if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENOTDIR) {
		return nil, fmt.Errorf("opening pool %s at %s: %w", name, dir, ErrMissing)
	}
	if err != nil {
		return nil, fmt.Errorf("opening pool %s at %s: %w", name, dir, err)
	}
	defer unix.Close(fd) //nolint:errcheck // nothing was written
	root, err := os.OpenRoot(fmt.Sprintf("/proc/self/fd/%d", fd))
	if err != nil {
		return nil, fmt.Errorf("opening pool %s at %s: %w", name, dir, err)
	}
	return &Pool{name: name, path: dir, root: root}, nil
}

// OpenOrMake is Open for a directory that is made when only the one that it is in is there.
func OpenOrMake(hostRoot, name, dir string) (*Pool, error) {
	p, err := Open(hostRoot, name, dir)
	if !errors.Is(err, ErrMissing) {
		return p, err
	}
	parent, err := Open(hostRoot, name, path.Dir(dir))
	if err != nil {
		return nil, err
	}
	defer parent.Close() //nolint:errcheck // what was made is synced
	if err := parent.root.Mkdir(path.Base(dir), 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, fmt.Errorf("making the directory %s of pool %s: %w", dir, name, err)
	}
	if err := parent.sync("."); err != nil {
		return nil, err
	}
	return Open(hostRoot, name, dir)
}

// Close releases the pool's directory.
func (p *Pool) Close() error {
	if err := p.root.Close(); err != nil {
		return fmt.Errorf("closing pool %s: %w", p.name, err)
	}
	return nil
}

// Name is the name that the pool was opened by.
func (p *Pool) Name() string { return p.name }

// IsMount tells whether something is mounted at the pool's directory.
func (p *Pool) IsMount() (bool, error) {
	dir, err := p.root.Open(".")
	if err != nil {
		return false, fmt.Errorf("opening pool %s: %w", p.name, err)
	}
	defer dir.Close()
	var stat unix.Statx_t
	if err := unix.Statx(int(dir.Fd()), "", unix.AT_EMPTY_PATH, 0, &stat); err != nil {
		return false, fmt.Errorf("reading the mount of pool %s: %w", p.name, err)
	}
	return stat.Attributes&unix.STATX_ATTR_MOUNT_ROOT != 0, nil
}

// Space is what the pool's file system holds. Total, Available and Used are bytes, the rest counts inodes.
type Space struct {
	Total, Available, Used  int64
	TotalInodes, FreeInodes int64
	// Device tells file systems of the node apart.
	Device uint64
}

// Space returns what the pool's file system holds. Volumes are thin: they share it.
func (p *Pool) Space() (Space, error) {
	dir, err := p.root.Open(".")
	if err != nil {
		return Space{}, fmt.Errorf("opening pool %s: %w", p.name, err)
	}
	defer dir.Close()
	var stat unix.Statfs_t
	if err := unix.Fstatfs(int(dir.Fd()), &stat); err != nil {
		return Space{}, fmt.Errorf("reading the space of pool %s: %w", p.name, err)
	}
	var at unix.Stat_t
	if err := unix.Fstat(int(dir.Fd()), &at); err != nil {
		return Space{}, fmt.Errorf("reading the file system of pool %s: %w", p.name, err)
	}
	unit := stat.Frsize
	return Space{
		Total: int64(stat.Blocks) * unit, Available: int64(stat.Bavail) * unit, Used: int64(stat.Blocks-stat.Bfree) * unit,
		TotalInodes: int64(stat.Files), FreeInodes: int64(stat.Ffree), Device: at.Dev,
	}, nil
}

// Sweep removes what crashes left half made or half removed. Call it while nothing
// else works in the pool.
func (p *Pool) Sweep() error {
	var failed []error
	for _, dir := range []string{newDir, trashDir} {
		entries, err := p.list(dir)
		failed = append(failed, err)
		remove := p.remove
		if dir == newDir {
			remove = p.removeDraft
		}
		for _, entry := range entries {
			failed = append(failed, remove(dir+"/"+entry))
		}
	}
	return errors.Join(failed...)
}

// list returns the names in dir, none when it does not exist.
func (p *Pool) list(dir string) ([]string, error) {
	file, err := p.root.Open(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("opening %s of pool %s: %w", dir, p.name, err)
	}
	defer file.Close()
	names, err := file.Readdirnames(-1)
	if err != nil {
		return nil, fmt.Errorf("listing %s of pool %s: %w", dir, p.name, err)
	}
	return names, nil
}

func (p *Pool) remove(name string) error {
	if err := p.root.RemoveAll(name); err != nil {
		return fmt.Errorf("removing %s of pool %s: %w", name, p.name, err)
	}
	p.step()
	return nil
}

// move renames and makes sure that a crash does not undo it.
func (p *Pool) move(from, to string) error {
	if err := p.root.Rename(from, to); err != nil {
		return fmt.Errorf("moving %s to %s in pool %s: %w", from, to, p.name, err)
	}
	p.step()
	return errors.Join(p.sync(path.Dir(to)), p.sync(path.Dir(from)))
}

func (p *Pool) sync(name string) error {
	file, err := p.root.Open(name)
	if err != nil {
		return fmt.Errorf("opening %s of pool %s: %w", name, p.name, err)
	}
	defer file.Close()
	if err := file.Sync(); err != nil {
		return fmt.Errorf("syncing %s of pool %s: %w", name, p.name, err)
	}
	p.step()
	return nil
}

func (p *Pool) step() {
	if p.stepped != nil {
		p.stepped()
	}
}

func (p *Pool) prepare(dirs ...string) error {
	for _, dir := range dirs {
		if err := p.root.MkdirAll(dir, 0o700); err != nil {
			return fmt.Errorf("making %s of pool %s: %w", dir, p.name, err)
		}
	}
	return nil
}
