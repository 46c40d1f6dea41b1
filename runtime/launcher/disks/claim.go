package disks

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/slipway-vm/slipway/internal/names"
	"github.com/slipway-vm/slipway/runtime/domain"
)

// alignment of the disks made on claims, in bytes.
const alignment = 1 << 20

// use says what a claim's disk is wanted for.
type use struct {
	// capacity is the claim's in bytes, the size of the blank disk that an empty one gets, and to which
	// others grow. 0: unknown.
	capacity int64
	// readOnly disks are neither made nor written.
	readOnly bool
	// fixed disks keep their size: the guest only reads them.
	fixed bool
}

// mode is how the disk is opened.
func (u use) mode() int {
	if u.readOnly {
		return os.O_RDONLY
	}
	return os.O_RDWR
}

// claim finds the disk of a claim: a block device, or disk.img in a file system,
// always raw: its first bytes are the guest's to write, so they decide nothing.
func claim(paths Paths, volume string, wanted use) (Disk, error) {
	block := filepath.Join(paths.Blocks, volume)
	if isBlockDevice(block) {
		return blockClaim(block, wanted)
	}
	return fileClaim(filepath.Join(paths.Claims, volume), wanted)
}

// fileClaim finds disk.img in dir, the file system of a claim.
func fileClaim(dir string, wanted use) (Disk, error) {
	path := filepath.Join(dir, names.DiskFile)
	info, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		if wanted.readOnly {
			return Disk{}, fmt.Errorf("the claim holds no %s, and it is only read; import a disk into it first", names.DiskFile)
		}
		if err := createDisk(dir, path, wanted.capacity); err != nil {
			return Disk{}, err
		}
		info, err = os.Lstat(path)
	}
	if err != nil {
		return Disk{}, fmt.Errorf("looking for the disk on the claim: %w", err)
	}
	if !info.Mode().IsRegular() {
		return Disk{}, fmt.Errorf("%s on the claim is no regular file (%s); put a raw disk image there", names.DiskFile, info.Mode())
	}
	if info.Size() == 0 {
		return Disk{}, fmt.Errorf("%s on the claim is empty; delete it to get a blank disk, or put a raw disk image there", names.DiskFile)
	}
	if err := accessible(path, wanted); err != nil {
		return Disk{}, err
	}
	size := info.Size()
	if !wanted.readOnly && !wanted.fixed {
		err = unlocked(path, filepath.Base(dir))
		if err == nil {
			size, err = grow(dir, path, info, wanted.capacity)
		}
		if err != nil && !errors.Is(err, errInUse) { // what another machine writes to stays as it is
			return Disk{}, err
		}
	}
	image := domain.Image{Path: path, Format: domain.FormatRaw}
	return Disk{Disk: domain.Disk{Image: image, DirectIO: directIO(path)}, Size: size}, nil
}

// accessible says why QEMU could not use the image at path.
func accessible(path string, wanted use) error {
	verb, bits := "written", uint32(unix.R_OK|unix.W_OK)
	if wanted.readOnly {
		verb, bits = "read", unix.R_OK
	}
	if err := unix.Access(path, bits); err != nil {
		return fmt.Errorf("%s on the claim cannot be %s by uid %d (%w); give it group %d and mode 0660", names.DiskFile, verb, names.QEMUUser, err, names.QEMUUser)
	}
	return nil
}

func isBlockDevice(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode()&(os.ModeDevice|os.ModeCharDevice) == os.ModeDevice
}

func blockClaim(path string, wanted use) (Disk, error) {
	device, err := os.OpenFile(path, wanted.mode(), 0)
	if err != nil {
		return Disk{}, fmt.Errorf("opening the claim's device: %w", err)
	}
	size, seekErr := device.Seek(0, io.SeekEnd)
	if err := errors.Join(seekErr, device.Close()); err != nil {
		return Disk{}, fmt.Errorf("reading the size of the claim's device: %w", err)
	}
	image := domain.Image{Path: path, Format: domain.FormatRaw, Block: true}
	return Disk{Disk: domain.Disk{Image: image, DirectIO: directIO(path)}, Size: size}, nil
}

// createDisk makes a blank, sparse disk on a claim with nothing on it.
func createDisk(dir, path string, capacity int64) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return fmt.Errorf("reading the claim: %w", err)
	}
	for _, entry := range entries {
		if entry.Name() != "lost+found" {
			return fmt.Errorf("the claim holds no %s but other files (%s); import a disk into it, or use an empty claim", names.DiskFile, entry.Name())
		}
	}
	if capacity <= 0 {
		return fmt.Errorf("the claim is empty and its capacity is not known; import a disk into it (DataVolume source blank)")
	}
	size, err := diskSize(dir, capacity)
	if err != nil {
		return err
	}
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o660)
	if err != nil {
		return fmt.Errorf("making a blank disk on the claim: %w", err)
	}
	if err := errors.Join(file.Truncate(size), file.Sync(), file.Close()); err != nil {
		return errors.Join(fmt.Errorf("making a blank disk on the claim: %w", err), os.Remove(path))
	}
	return nil
}

// diskSize is the claim's capacity, or a little less where the file system's own
// structures take up to a tenth of it.
func diskSize(dir string, capacity int64) (int64, error) {
	var stat unix.Statfs_t
	if err := unix.Statfs(dir, &stat); err != nil {
		return 0, fmt.Errorf("reading the claim's free space: %w", err)
	}
	free := int64(stat.Bavail) * stat.Bsize
	if free < capacity/10*9 {
		return 0, fmt.Errorf("the claim of %d bytes has only %d free; use a larger claim", capacity, free)
	}
	return max(min(free, capacity)/alignment*alignment, 512), nil
}
