package source

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/slipway-vm/slipway/internal/names"
	"github.com/slipway-vm/slipway/internal/transfer"
)

// Volume is the disk on a volume beside the one that is filled. It is read as it is: a guest may have written the
// beginning of any image onto its disk.
type Volume struct {
	file *os.File
	size int64
	// changed is when a file was last written to, as it was opened; not known of a device.
	changed time.Time
}

// OpenVolume opens the block device at path, or disk.img in the folder there.
func OpenVolume(path string) (*Volume, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, transfer.Errorf(transfer.SourceFailed, "looking for the volume to copy from: %w", err)
	}
	var file *os.File
	switch kind := info.Mode(); {
	case kind.IsDir():
		file, err = openDiskFile(filepath.Join(path, names.DiskFile))
	case kind&fs.ModeDevice != 0 && kind&fs.ModeCharDevice == 0:
		if file, err = os.Open(path); err != nil {
			err = transfer.Errorf(transfer.SourceFailed, "opening the block device to copy from: %w", err)
		}
	default:
		err = transfer.Errorf(transfer.BadRequest, "the volume to copy from at %s is neither a folder nor a block device", path)
	}
	if err != nil {
		return nil, err
	}
	size, err := file.Seek(0, io.SeekEnd)
	if err == nil && size == 0 {
		err = transfer.Errorf(transfer.WrongFormat, "the disk to copy is empty; copy another")
	}
	if err != nil {
		_ = file.Close() // nothing was read
		return nil, fmt.Errorf("looking at the disk to copy: %w", err)
	}
	volume := &Volume{file: file, size: size}
	if volume.changed, err = volume.lastChange(); err != nil {
		_ = file.Close() // nothing was read
		return nil, err
	}
	return volume, nil
}

// lastChange is when the disk's file was last written to.
func (v *Volume) lastChange() (time.Time, error) {
	info, err := v.file.Stat()
	if err != nil {
		return time.Time{}, transfer.Errorf(transfer.SourceFailed, "looking at the disk to copy: %w", err)
	}
	if !info.Mode().IsRegular() {
		return time.Time{}, nil
	}
	return info.ModTime(), nil
}

// Unchanged makes sure that nobody has written to the disk's file since it was opened: then what was read of it is of one moment.
// Who may write to a device only the cluster knows.
func (v *Volume) Unchanged() error {
	changed, err := v.lastChange()
	if err == nil && !changed.Equal(v.changed) {
		err = transfer.Errorf(transfer.SourceChanged, "somebody wrote to the disk while it was copied; the copy begins anew")
	}
	return err
}

// openDiskFile opens a file of a volume, which is followed nowhere: what its user put there may lead out of it, or wait
// for somebody who writes.
func openDiskFile(name string) (*os.File, error) {
	const only = "only disks are copied; clone it onto a StorageClass whose driver clones volumes of its storage"
	file, err := os.OpenFile(name, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, transfer.Errorf(transfer.WrongFormat, "the volume to copy from has no file %s: %s", names.DiskFile, only)
	case errors.Is(err, unix.ELOOP), errors.Is(err, unix.ENXIO): // a link, a socket
		return nil, transfer.Errorf(transfer.WrongFormat, "%s on the volume to copy from is no file: %s", names.DiskFile, only)
	case err != nil:
		return nil, transfer.Errorf(transfer.SourceFailed, "opening the disk to copy: %w", err)
	}
	info, err := file.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = transfer.Errorf(transfer.WrongFormat, "%s on the volume to copy from is no file: %s", names.DiskFile, only)
	}
	if err != nil {
		_ = file.Close() // nothing was read
		return nil, fmt.Errorf("looking at the disk to copy: %w", err)
	}
	return file, nil
}

// Size is the disk's in bytes.
func (v *Volume) Size() int64 { return v.size }

// Hole reports whether the file system has nothing in the length bytes at off, which are zeros then. Block devices, and
// file systems that do not tell, have no holes. It may be called by many goroutines.
func (v *Volume) Hole(off, length int64) bool {
	next, err := unix.Seek(int(v.file.Fd()), off, unix.SEEK_DATA)
	if errors.Is(err, unix.ENXIO) {
		return true // there is nothing from off on
	}
	return err == nil && next >= off+length
}

// ReadAt reads bytes that are within the disk's size.
func (v *Volume) ReadAt(p []byte, off int64) (int, error) {
	n, err := v.file.ReadAt(p, off)
	switch {
	case n == len(p):
		return n, nil
	case errors.Is(err, io.EOF):
		return n, transfer.Errorf(transfer.SourceChanged, "the disk became shorter while it was copied, at byte %d; the copy begins anew", off+int64(n))
	}
	return n, transfer.Errorf(transfer.SourceFailed, "reading the disk to copy at byte %d: %w", off, err)
}

// Close ends the reading.
func (v *Volume) Close() error {
	if err := v.file.Close(); err != nil {
		return fmt.Errorf("closing the disk that was copied: %w", err)
	}
	return nil
}
