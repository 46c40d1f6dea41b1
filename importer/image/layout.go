package image

import (
	"io"
	"math"

	"github.com/slipway-vm/slipway/internal/transfer"
)

// UnknownSize is the size of a file whose end has not been seen.
const UnknownSize = math.MaxInt64

// Layout is an image whose header was read and whose tables were not.
type Layout interface {
	// DiskSize is the disk's size in bytes.
	DiskSize() int64
	// Open reads the first tables. Meta is used for tables, by one goroutine at a time.
	Open(meta io.ReaderAt, fileSize int64) (Disk, error)
}

// Disk is the content of an open image. Its methods may be called from many goroutines.
type Disk interface {
	// Unit is how much of the disk is read at a time, in bytes: MinUnit, or a cluster where these are larger
	// and may be packed.
	Unit() int64
	// Read fills p with the disk's bytes at off through r, which is the caller's own reader of
	// the file. Off is a multiple of Unit, p at most that long and within the disk. It reports
	// whether anything is allocated there; where nothing is, p is left as it was.
	Read(r io.ReaderAt, p []byte, off int64) (allocated bool, err error)
}

// MinUnit is the least that is read of a disk at a time, in bytes: no more, so that what was read is still in a
// processor's cache when it is hashed.
const MinUnit = 1 << 20

// Parse reads the header of an image of a mapped format, whose first bytes are head, and
// refuses what is not supported or contradicts itself. FileSize may be UnknownSize.
func Parse(format Format, head []byte, meta io.ReaderAt, fileSize int64) (Layout, error) {
	var layout Layout
	var err error
	switch format {
	case QCOW2:
		layout, err = ParseQCOW2(head)
	case VMDK:
		layout, err = parseVMDK(head, meta, fileSize)
	case VHD:
		layout, err = parseVHD(head, meta, fileSize)
	case VHDX:
		layout, err = parseVHDX(meta, fileSize)
	case VDI:
		layout, err = parseVDI(head, fileSize)
	default:
		return nil, transfer.Errorf(transfer.Internal, "a file of the format %s has no tables", format)
	}
	if err != nil {
		return nil, err
	}
	return layout, nil
}
