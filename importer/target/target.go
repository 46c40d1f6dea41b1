// Package target writes a disk onto a volume: a sparse file on a file system, or a block
// device. Writes may come in any order and from many goroutines.
package target

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/slipway-vm/slipway/internal/transfer"
)

// PartialSuffix marks the file of a disk that is not complete yet. Nothing uses such a
// file as a disk; a later attempt begins anew over it.
const PartialSuffix = ".partial"

// devices is where the operating system has its devices, which may be named by links there.
const devices = "/dev/"

// sector is the unit of a disk's size.
const sector = 512

// Options say where a disk goes and how large it must be.
type Options struct {
	// Path is a block device, or the disk's file (which need not exist, its directory must). A link to a device is one
	// below /dev alone.
	Path string
	// Size is the size asked for in bytes; 0 is that of the image, or of the whole device.
	Size int64
	// Preallocate reserves the disk's full size, of a device by zeros where nothing is written.
	Preallocate bool
}

// Disk is a disk that is being written. Commit makes it whole, Abort leaves nothing usable.
type Disk struct {
	path     string
	block    bool
	capacity int64 // the most bytes that the disk may have
	options  Options
	size     int64 // the disk's final size, set by Begin

	direct   *os.File // O_DIRECT, nil where the file system has none
	buffered *os.File
	written  atomic.Int64
	flusher  flusher
}

// Open looks at the volume and writes nothing.
func Open(options Options) (*Disk, error) {
	d := &Disk{path: options.Path, options: options}
	look := os.Lstat // what somebody has put on the volume leads nowhere
	if strings.HasPrefix(filepath.Clean(options.Path), devices) {
		look = os.Stat
	}
	info, err := look(options.Path)
	switch {
	case err == nil && info.Mode()&os.ModeDevice != 0:
		d.block = true
		d.capacity, err = deviceSize(options.Path)
	case err == nil || errors.Is(err, os.ErrNotExist):
		d.capacity, err = fileCapacity(options)
	}
	if err != nil {
		return nil, failed(err, "looking at the volume of %s", options.Path)
	}
	return d, nil
}

// Capacity is the largest disk in bytes that the volume takes.
func (d *Disk) Capacity() int64 { return d.capacity }

// Size is the size in bytes of the finished disk, known after Begin.
func (d *Disk) Size() int64 { return d.size }

// Written is how many bytes were written so far.
func (d *Disk) Written() int64 { return d.written.Load() }

// Begin makes room for an image of virtual bytes, or refuses before anything is written
// when the volume is too small for it, or a device that somebody else has for himself.
func (d *Disk) Begin(virtual int64) error {
	if err := d.Check(virtual); err != nil {
		return err
	}
	d.size = roundUp(virtual, sector)
	if d.block {
		d.size = d.capacity
	} else if d.options.Size > 0 {
		d.size = max(d.size, d.capacity/sector*sector)
	}
	// Of a device, O_EXCL means that nobody else has it so: no importer whose pod is gone clears its edges, or writes its last
	// blocks, after this one has begun. A former importer's file is another one than this one's: see ownFile.
	name, flags := d.path, os.O_RDWR|os.O_EXCL
	if !d.block {
		name, flags = d.path+PartialSuffix, os.O_RDWR|os.O_CREATE|os.O_EXCL
	}
	err := d.clearWay()
	if err != nil {
		return err
	}
	if d.buffered, err = os.OpenFile(name, flags, 0o660); errors.Is(err, unix.EBUSY) {
		return failed(err, "something else has %s, perhaps an importer that has not quite ended; opening it", name)
	} else if err != nil {
		return failed(err, "opening %s", name)
	}
	nofollow := unix.O_NOFOLLOW
	if d.block {
		nofollow = 0 // a device may be named by a link of the operating system's
	}
	if d.direct, err = os.OpenFile(name, os.O_RDWR|unix.O_DIRECT|nofollow, 0); err != nil {
		d.direct = nil // tmpfs and some network file systems: the page cache does it
	}
	if d.block {
		return nil
	}
	return d.resize()
}

// resize gives the file its size, and all of its room where that is asked for.
func (d *Disk) resize() error {
	if err := d.buffered.Truncate(d.size); err != nil {
		return failed(err, "making %s %s large", d.path, bytesText(d.size))
	}
	if !d.options.Preallocate || d.size == 0 { // of a stream whose end will tell its size
		return nil
	}
	if err := unix.Fallocate(int(d.buffered.Fd()), 0, 0, d.size); err != nil {
		return failed(err, "reserving %s for %s", bytesText(d.size), d.path)
	}
	return nil
}

// clearWay removes what an earlier attempt left, and the disk that the volume held before, whose room the new one takes.
// The volume may have been anybody's: of a link itself goes, not what it leads to.
func (d *Disk) clearWay() error {
	if d.block {
		return nil
	}
	for _, name := range []string{d.path, d.path + PartialSuffix} {
		if err := os.Remove(name); err != nil && !errors.Is(err, os.ErrNotExist) {
			return failed(err, "removing what was on the volume before")
		}
	}
	return nil
}

// Grow makes room for an image whose size of virtual bytes became known at its end.
func (d *Disk) Grow(virtual int64) error {
	size := roundUp(virtual, sector)
	if d.block || size == d.size || size < d.size && d.options.Size > 0 {
		return nil
	}
	d.size = size
	return d.resize()
}

// Check refuses an image of virtual bytes that the volume cannot hold.
func (d *Disk) Check(virtual int64) error {
	if virtual <= d.capacity {
		return nil
	}
	return transfer.Errorf(transfer.TooSmall,
		"the image's disk is %s, the volume takes at most %s; ask for a volume of at least %s",
		bytesText(virtual), bytesText(d.capacity), bytesText(roundUp(virtual, 1<<20)))
}

// Commit makes the disk safe and, on a file system, gives it its name. After it the disk is whole.
func (d *Disk) Commit(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("finishing %s: %w", d.path, err)
	}
	if err := errors.Join(d.flusher.wait(), d.buffered.Sync()); err != nil {
		return failed(err, "making %s safe", d.path)
	}
	own := d.ownFile()
	if err := d.close(); err != nil {
		return failed(err, "closing %s", d.path)
	}
	if d.block {
		return nil
	}
	if !own {
		return transfer.Errorf(transfer.TargetFailed, "another importer has begun %s anew meanwhile; this one gives it up", d.path)
	}
	if err := os.Rename(d.path+PartialSuffix, d.path); err != nil {
		return failed(err, "naming the finished disk")
	}
	if err := syncDirectory(filepath.Dir(d.path)); err != nil {
		return failed(err, "making the name of %s safe", d.path)
	}
	return nil
}

// Abort gives up: a file is removed, unless it is another importer's by now; of a device the first and last MiB are cleared, so that
// nothing takes a partial disk for one with partitions.
func (d *Disk) Abort() error {
	if d.buffered == nil {
		return nil
	}
	var clear error
	if d.block {
		edge := min(int64(1<<20), d.capacity)
		clear = errors.Join(d.zeroDevice(0, edge), d.zeroDevice(d.capacity-edge, edge), d.buffered.Sync())
	}
	err := clear
	if d.ownFile() { // first, for to close it may wait for a flush, and an importer that must go has little time
		err = errors.Join(err, os.Remove(d.path+PartialSuffix))
	}
	err = errors.Join(err, d.close())
	if err != nil {
		return failed(err, "removing the partial disk %s", d.path)
	}
	return nil
}

// ownFile reports whether the partial disk's file is still this one's: one that outlives its pod leaves that of its successor alone.
func (d *Disk) ownFile() bool {
	mine, err := d.buffered.Stat()
	if err != nil || d.block {
		return false
	}
	there, err := os.Lstat(d.path + PartialSuffix)
	return err == nil && os.SameFile(mine, there)
}

func (d *Disk) close() error {
	_ = d.flusher.wait() // Commit has heard of it; of a disk that is given up nobody wants to
	err := d.buffered.Close()
	if d.direct != nil {
		err = errors.Join(err, d.direct.Close())
	}
	d.buffered, d.direct = nil, nil
	return err
}

// failed wraps err with the reason that the operating system's error stands for.
func failed(err error, format string, args ...any) error {
	doing := fmt.Sprintf(format, args...)
	if errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) || errors.Is(err, unix.EFBIG) {
		return transfer.Errorf(transfer.NoSpace, "%s: %w; free space on the volume's storage or take another storage class", doing, err)
	}
	return transfer.Errorf(transfer.TargetFailed, "%s: %w", doing, err)
}

func roundUp(n, unit int64) int64 { return (n + unit - 1) / unit * unit }

// bytesText writes a size so that a person can compare it: exact, and in GiB or MiB.
func bytesText(n int64) string {
	switch {
	case n >= 1<<30:
		return fmt.Sprintf("%d bytes (%.2f GiB)", n, float64(n)/(1<<30))
	case n >= 1<<20:
		return fmt.Sprintf("%d bytes (%.2f MiB)", n, float64(n)/(1<<20))
	}
	return fmt.Sprintf("%d bytes", n)
}
