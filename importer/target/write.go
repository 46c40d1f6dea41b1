package target

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/slipway-vm/slipway/internal/digest"
)

// grain is the finest piece of zeros that is left out of a write.
const grain = 64 << 10

// Write puts data at off, which is a multiple of Alignment. Zeros are left out on a file,
// which has none but zeros yet, and cleared with the device's own command on a device.
func (d *Disk) Write(data []byte, off int64) error {
	if err := d.flusher.wrote(int(d.buffered.Fd()), d.written.Load()); err != nil {
		return failed(err, "making what was written of %s safe", d.path)
	}
	for start := 0; start < len(data); {
		end, zero := run(data, start)
		var err error
		switch {
		case !zero:
			err = d.put(data[start:end], off+int64(start))
		case d.block:
			err = d.zeroDevice(off+int64(start), int64(end-start))
		}
		if err != nil {
			return failed(err, "writing %d bytes at %d of %s", end-start, off+int64(start), d.path)
		}
		start = end
	}
	return nil
}

// Zero clears length bytes at off: nothing to do on a fresh file.
func (d *Disk) Zero(off, length int64) error {
	if !d.block || length <= 0 {
		return nil
	}
	if err := d.zeroDevice(off, length); err != nil {
		return failed(err, "clearing %d bytes at %d of %s", length, off, d.path)
	}
	return nil
}

// ReadAt reads back what was written.
func (d *Disk) ReadAt(p []byte, off int64) (int, error) {
	n, err := d.buffered.ReadAt(p, off)
	if err != nil {
		return n, fmt.Errorf("reading back %s at %d: %w", d.path, off, err)
	}
	return n, nil
}

// run returns the end of the stretch of grains at start that are all zero, or all not.
func run(data []byte, start int) (end int, zero bool) {
	end = min(start+grain, len(data))
	zero = digest.IsZero(data[start:end])
	for end < len(data) {
		next := min(end+grain, len(data))
		if digest.IsZero(data[end:next]) != zero {
			break
		}
		end = next
	}
	return end, zero
}

// put writes data, past the page cache as far as it is aligned.
func (d *Disk) put(data []byte, off int64) error {
	d.written.Add(int64(len(data)))
	if d.direct != nil && aligned(data) && off%Alignment == 0 {
		whole := len(data) / Alignment * Alignment
		if _, err := d.direct.WriteAt(data[:whole], off); err == nil {
			data, off = data[whole:], off+int64(whole)
		} else if !errors.Is(err, unix.EINVAL) {
			return fmt.Errorf("writing directly: %w", err)
		}
	}
	if len(data) == 0 {
		return nil
	}
	if _, err := d.buffered.WriteAt(data, off); err != nil {
		return fmt.Errorf("writing: %w", err)
	}
	return nil
}

// zeroDevice clears a stretch of a block device by its own command, else by writing zeros. What lies under a thin
// device is given back, unless all of it is to be reserved.
func (d *Disk) zeroDevice(off, length int64) error {
	length = min(length, d.capacity-off)
	if length <= 0 {
		return nil
	}
	if off%sector == 0 && length%sector == 0 && (d.punch(off, length) || d.zeroOut(off, length)) {
		return nil
	}
	zeros := pages(digest.BlockSize)
	for length > 0 {
		n := min(length, int64(len(zeros)))
		if err := d.put(zeros[:n], off); err != nil {
			return err
		}
		off, length = off+n, length-n
	}
	return nil
}

// punch makes a stretch of a device read as zeros and take no room, and says whether the device can do that and may.
func (d *Disk) punch(off, length int64) bool {
	return !d.options.Preallocate &&
		unix.Fallocate(int(d.buffered.Fd()), unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, off, length) == nil
}

// zeroOut makes a stretch of a device zeros that have their room, and says whether the kernel does that.
func (d *Disk) zeroOut(off, length int64) bool {
	span := [2]uint64{uint64(off), uint64(length)}
	_, _, errno := unix.Syscall(unix.SYS_IOCTL, d.buffered.Fd(), unix.BLKZEROOUT, uintptr(unsafe.Pointer(&span)))
	runtime.KeepAlive(&span)
	return errno == 0
}

// deviceSize is the size of the block device at path in bytes.
func deviceSize(path string) (int64, error) {
	f, err := os.Open(path)
	if err != nil {
		return 0, fmt.Errorf("opening the device: %w", err)
	}
	defer f.Close()
	size, err := f.Seek(0, 2)
	if err != nil {
		return 0, fmt.Errorf("asking for its size: %w", err)
	}
	return size, nil
}

// Room is how many bytes files may have in the directory dir of a volume of size bytes: the size asked
// for where the file system is at least that large, so that a volume on a shared one is thin; on a
// smaller one, which is the volume's own, what is free. A size of 0 asks for none.
func Room(dir string, size int64) (int64, error) {
	var fs unix.Statfs_t
	if err := unix.Statfs(dir, &fs); err != nil {
		return 0, failed(err, "asking for the free space of %s", dir)
	}
	if total := int64(fs.Blocks) * fs.Bsize; size > 0 && total >= size {
		return size, nil
	}
	return int64(fs.Bavail) * fs.Bsize, nil
}

// fileCapacity is the largest disk that the file system takes: the room there, where that is not the
// whole size asked for with what an earlier disk or attempt took.
func fileCapacity(options Options) (int64, error) {
	free, err := Room(filepath.Dir(options.Path), options.Size)
	if err != nil || free == options.Size {
		return free, err
	}
	for _, name := range []string{options.Path, options.Path + PartialSuffix} {
		var st unix.Stat_t
		if err := unix.Lstat(name, &st); err == nil {
			free += st.Blocks * sector
		}
	}
	return free / Alignment * Alignment, nil
}

func syncDirectory(path string) error {
	dir, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("opening the directory: %w", err)
	}
	defer dir.Close()
	if err := dir.Sync(); err != nil {
		return fmt.Errorf("syncing the directory: %w", err)
	}
	return nil
}
