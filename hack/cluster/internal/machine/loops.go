package machine

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/hashicorp/go-multierror"
	"golang.org/x/sys/unix"

	"github.com/slipway-vm/slipway/hack/cluster/internal/layout"
)

// file is where a file is: its file system and its number in it.
type file struct{ device, inode uint64 }

// loop is a loop device in use.
type loop struct {
	path string
	// number is the device's own.
	number uint64
	// behind is the file behind it, and disk that file's number as a block device, 0 when it is none.
	behind file
	disk   uint64
}

// DetachPool frees the loop devices of the node's Block volumes. Who made them has ended, and
// each keeps the pool mounted.
func DetachPool(n layout.Node) error {
	inPool, err := poolFiles(n)
	if err != nil {
		return err
	}
	all, err := loops()
	if err != nil {
		return err
	}
	var failed *multierror.Error
	for _, l := range stackedOn(all, inPool) {
		if err := l.detach(); err != nil {
			failed = multierror.Append(failed, err)
		}
	}
	return failed.ErrorOrNil()
}

// poolFiles tells of a file whether it is in the node's pool: by its file system where the pool
// has one of its own, for the file may have been removed, and by its number where it has none.
func poolFiles(n layout.Node) (func(file) bool, error) {
	var pool, above unix.Stat_t
	if err := unix.Stat(n.Pool(), &pool); errors.Is(err, unix.ENOENT) {
		return func(file) bool { return false }, nil
	} else if err != nil {
		return nil, fmt.Errorf("looking at the pool: %w", err)
	}
	if err := unix.Stat(n.Dir, &above); err != nil {
		return nil, fmt.Errorf("looking at the node's folder: %w", err)
	}
	if pool.Dev != above.Dev {
		return func(f file) bool { return f.device == pool.Dev }, nil
	}
	found := map[file]bool{}
	err := filepath.WalkDir(n.Pool(), func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		var s unix.Stat_t
		if err := unix.Lstat(path, &s); err != nil {
			return fmt.Errorf("looking at %s: %w", path, err)
		}
		found[file{s.Dev, s.Ino}] = true
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("listing the pool's files: %w", err)
	}
	return func(f file) bool { return found[f] }, nil
}

// loops returns the machine's loop devices that are in use.
func loops() ([]loop, error) {
	folders, err := filepath.Glob("/sys/block/loop*/loop") // there while a file is behind the device
	if err != nil {
		return nil, fmt.Errorf("listing loop devices: %w", err)
	}
	var all []loop
	for _, folder := range folders {
		l := loop{path: filepath.Join("/dev", filepath.Base(filepath.Dir(folder)))}
		switch err := l.read(); {
		case errors.Is(err, unix.ENXIO) || errors.Is(err, os.ErrNotExist): // freed meanwhile
		case err != nil:
			return nil, err
		default:
			all = append(all, l)
		}
	}
	return all, nil
}

func (l *loop) read() error {
	device, err := os.Open(l.path)
	if err != nil {
		return fmt.Errorf("opening a loop device: %w", err)
	}
	defer device.Close() //nolint:errcheck // only read
	info, err := unix.IoctlLoopGetStatus64(int(device.Fd()))
	if err != nil {
		return fmt.Errorf("asking for the file behind %s: %w", l.path, err)
	}
	var s unix.Stat_t
	if err := unix.Fstat(int(device.Fd()), &s); err != nil {
		return fmt.Errorf("looking at %s: %w", l.path, err)
	}
	l.number, l.behind, l.disk = s.Rdev, file{info.Device, info.Inode}, info.Rdevice
	return nil
}

func (l *loop) detach() error {
	device, err := os.Open(l.path)
	if err != nil {
		return fmt.Errorf("opening a loop device: %w", err)
	}
	defer device.Close() //nolint:errcheck // only read
	if err := unix.IoctlSetInt(int(device.Fd()), unix.LOOP_CLR_FD, 0); err != nil && !errors.Is(err, unix.ENXIO) {
		return fmt.Errorf("freeing %s, behind which a file of the pool is: %w", l.path, err)
	}
	return nil
}

// stackedOn returns the loop devices whose file is chosen and those on top of them, for the kubelet
// puts one of its own onto the device of a Block volume: the topmost first.
func stackedOn(all []loop, chosen func(file) bool) []loop {
	taken := map[uint64]bool{}
	var found []loop
	for range all { // each round takes those on top of the round before
		var next []loop
		for _, l := range all {
			if !taken[l.number] && (chosen(l.behind) || l.disk != 0 && taken[l.disk]) {
				next = append(next, l)
			}
		}
		for _, l := range next {
			taken[l.number] = true
		}
		found = append(next, found...)
	}
	return found
}
