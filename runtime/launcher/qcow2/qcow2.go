// Package qcow2 reads headers of disk images and writes new, empty qcow2 images,
// without running qemu-img. An image from elsewhere may name other files to read
// (a backing file, an external data file): such images are refused.
package qcow2

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// MaxSize bounds the virtual size of an image, in bytes: more than any volume, and
// few enough that its tables stay small.
const MaxSize = 64 << 40

const magic = "QFI\xfb"

// Kinds of header extensions.
const (
	extensionEnd           = 0
	extensionBackingFormat = 0xE2792ACA
	extensionDataFile      = 0x44415441
)

const incompatibleDataFile = 1 << 2

// header is the fixed part of a qcow2 file, big-endian, as its specification has it.
type header struct {
	Magic           [4]byte
	Version         uint32
	BackingOffset   uint64
	BackingSize     uint32
	ClusterBits     uint32
	Size            uint64
	Encryption      uint32
	L1Entries       uint32
	L1Offset        uint64
	RefcountOffset  uint64
	RefcountClust   uint32
	Snapshots       uint32
	SnapshotsOffset uint64
	// Version 3 from here.
	Incompatible  uint64
	Compatible    uint64
	AutoClear     uint64
	RefcountOrder uint32
	HeaderLength  uint32
}

// Info is what an image is.
type Info struct {
	// QCOW2 tells qcow2 from raw.
	QCOW2 bool
	// Size is the virtual size in bytes.
	Size int64
}

// foreign are the first bytes of formats that look like raw images but are none.
var foreign = map[string]string{
	"KDMV": "VMDK", "# Disk DescriptorFile": "VMDK", "vhdxfile": "VHDX", "conectix": "VHD",
	"<<< ": "VDI", "QED\x00": "QED", "\x1f\x8b": "gzip", "\xfd7zXZ\x00": "xz", "(\xb5/\xfd": "zstd",
}

// Inspect reads the header of an image of size bytes: raw, or a qcow2 that stands alone.
func Inspect(image io.ReaderAt, size int64) (Info, error) {
	start := make([]byte, 512)
	n, err := image.ReadAt(start, 0)
	if err != nil && !errors.Is(err, io.EOF) {
		return Info{}, fmt.Errorf("reading the image's first bytes: %w", err)
	}
	start = start[:n]
	for prefix, name := range foreign {
		if bytes.HasPrefix(start, []byte(prefix)) {
			return Info{}, fmt.Errorf("the image is %s; convert it to qcow2 or raw first (qemu-img convert)", name)
		}
	}
	if !bytes.HasPrefix(start, []byte(magic)) {
		if size == 0 {
			return Info{}, errors.New("the image is empty; put a disk of at least 512 bytes there")
		}
		return Info{Size: (size + 511) &^ 511}, nil
	}
	return inspectQCOW2(image)
}

// length is the size of the header in bytes, without its extensions.
func (h *header) length() int64 {
	if h.Version >= 3 {
		return int64(h.HeaderLength)
	}
	return 72
}

func inspectQCOW2(image io.ReaderAt) (Info, error) {
	var h header
	section := io.NewSectionReader(image, 0, int64(binary.Size(h)))
	if err := binary.Read(section, binary.BigEndian, &h); err != nil {
		return Info{}, fmt.Errorf("the qcow2 header is cut off (%w); fetch the image again", err)
	}
	length := h.length()
	switch {
	case h.Version != 2 && h.Version != 3:
		return Info{}, fmt.Errorf("qcow2 version %d is unknown; convert the image with qemu-img", h.Version)
	case h.BackingOffset != 0:
		return Info{}, errors.New("the qcow2 image has a backing file; flatten it first (qemu-img convert)")
	case h.Version == 3 && h.Incompatible&incompatibleDataFile != 0:
		return Info{}, errors.New("the qcow2 image keeps its data in another file; flatten it first (qemu-img convert)")
	case h.Encryption != 0:
		return Info{}, errors.New("the qcow2 image is encrypted; decrypt it first (qemu-img convert)")
	case h.ClusterBits < 9 || h.ClusterBits > 21:
		return Info{}, fmt.Errorf("the qcow2 header is damaged (cluster bits %d); fetch the image again", h.ClusterBits)
	case h.Size == 0 || h.Size > MaxSize:
		return Info{}, fmt.Errorf("the qcow2 header claims %d bytes; at most %d are taken", h.Size, int64(MaxSize))
	case length < 72 || length > 1<<h.ClusterBits:
		return Info{}, fmt.Errorf("the qcow2 header is damaged (length %d); fetch the image again", length)
	}
	if err := refuseDataFile(image, length, 1<<h.ClusterBits); err != nil {
		return Info{}, err
	}
	return Info{QCOW2: true, Size: int64(h.Size)}, nil
}

// refuseDataFile walks the header's extensions, which end within the first cluster.
func refuseDataFile(image io.ReaderAt, offset, end int64) error {
	var field [8]byte
	for offset+8 <= end {
		if _, err := image.ReadAt(field[:], offset); err != nil {
			return fmt.Errorf("reading the qcow2 header's extensions: %w", err)
		}
		kind, length := binary.BigEndian.Uint32(field[:4]), binary.BigEndian.Uint32(field[4:])
		switch kind {
		case extensionEnd:
			return nil
		case extensionDataFile:
			return errors.New("the qcow2 image names an external data file; flatten it first (qemu-img convert)")
		}
		offset += 8 + (int64(length)+7)&^7
	}
	return nil
}
