// Package image knows the forms in which disks are published: raw, qcow2, VMDK, VHD, VHDX
// and VDI, each of them also packed with gzip, xz, zstd or bzip2, or alone in a tar archive, as
// an OVA is. Other forms are refused by name.
package image

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"unicode/utf8"

	"github.com/slipway-vm/slipway/internal/transfer"
)

// Format is the form of a file or of the content of a compressed stream.
type Format string

// Formats that are read.
const (
	Raw   Format = "raw"
	QCOW2 Format = "qcow2"
	VMDK  Format = "vmdk"
	VHD   Format = "vhd"
	VHDX  Format = "vhdx"
	VDI   Format = "vdi"
	Gzip  Format = "gz"
	XZ    Format = "xz"
	Zstd  Format = "zst"
	Bzip2 Format = "bz2"
	Tar   Format = "tar"
)

// HeadSize is how many first bytes Detect looks at.
const HeadSize = 4 << 10

// Compressed reports whether f wraps another format.
func (f Format) Compressed() bool { return f == Gzip || f == XZ || f == Zstd || f == Bzip2 }

// Mapped reports whether f has tables that say where in the file the disk's parts are, which Parse reads.
func (f Format) Mapped() bool { return f == QCOW2 || f == VMDK || f == VHD || f == VHDX || f == VDI }

var magics = []struct {
	format Format
	at     int
	magic  string
}{
	{QCOW2, 0, "QFI\xfb"},
	{VMDK, 0, "KDMV"},
	{VHD, 0, vhdFooterMagic},
	{VHDX, 0, "vhdxfile"},
	{VDI, 0x40, "\x7f\x10\xda\xbe"},
	{Gzip, 0, "\x1f\x8b"},
	{XZ, 0, "\xfd7zXZ\x00"},
	{Zstd, 0, "\x28\xb5\x2f\xfd"},
	{Bzip2, 4, "1AY&SY"}, // behind "BZh" and a digit: the mark of a block
	{Tar, 0x101, "ustar"},
}

// refused are the formats that are known and not read: where their mark stands, and what they are.
var refused = []struct {
	at    int
	magic string
	name  string
}{
	{0, "# Disk DescriptorFile", "the descriptor of a VMDK disk whose data is in other files"},
	{0, "COWD", "a VMDK disk of the kind vmfsSparse"},
	{0, "\xbe\xba\xfe\xca\x00\x00\x00\x00", "a VMDK disk of the kind seSparse"},
	{0, "QED\x00", "a QED disk"},
	{0, "WithoutFreeSpace", "a Parallels disk"},
	{0, "WithouFreSpacExt", "a Parallels disk"},
	{0, "PK\x03\x04", "a zip archive"},
	{0, "7z\xbc\xaf\x27\x1c", "a 7-Zip archive"},
	{0, "\x04\x22\x4d\x18", "an LZ4 stream"},
}

// A frame that a zstd decoder passes over has one of sixteen magic numbers, of which only the lowest four
// bits differ, and the length of what follows. pzstd begins a file with one.
const (
	zstdSkipped     = 0x184d2a50
	zstdSkippedMask = 0xfffffff0
	zstdSkippedHead = 8
)

// behindSkipped is head without the frames at its beginning that a zstd decoder passes over, as
// far as these end in it.
func behindSkipped(head []byte) []byte {
	for len(head) >= zstdSkippedHead && binary.LittleEndian.Uint32(head)&zstdSkippedMask == zstdSkipped {
		length := zstdSkippedHead + int64(binary.LittleEndian.Uint32(head[4:]))
		if length > int64(len(head)) {
			break
		}
		head = head[length:]
	}
	return head
}

// marked reports whether the first bytes of a file have a format's mark. Only a frame of zstd may have others before it.
func marked(head []byte, format Format, at int, magic string) bool {
	if format == Zstd {
		head = behindSkipped(head)
	}
	return len(head) > at && bytes.HasPrefix(head[at:], []byte(magic))
}

// Detect tells the format from a file's first bytes, of which it wants HeadSize or all.
// Whatever has no mark is raw, for a raw disk may begin with anything.
func Detect(head []byte) (Format, error) {
	for _, m := range magics {
		if marked(head, m.format, m.at, m.magic) {
			return m.format, nil
		}
	}
	for _, m := range refused {
		if len(head) > m.at && bytes.HasPrefix(head[m.at:], []byte(m.magic)) {
			return "", transfer.Errorf(transfer.WrongFormat,
				"the file is %s, which is not supported; publish it as qcow2 or raw (qemu-img convert -O qcow2), alone or packed with gzip, xz or zstd", m.name)
		}
	}
	return Raw, nil
}

// Packing tells the compression of a stream from its first bytes; it is empty when there is none.
func Packing(head []byte) Format {
	for _, m := range magics {
		if m.format.Compressed() && marked(head, m.format, m.at, m.magic) {
			return m.format
		}
	}
	return ""
}

// LooksLikeText reports whether head, the first bytes of a raw image, is text: an error
// page, say, where a disk was meant.
func LooksLikeText(head []byte) bool {
	head = head[:min(len(head), 1<<10)]
	if len(head) == 0 || bytes.IndexByte(head, 0) >= 0 {
		return false
	}
	for len(head) > 0 && len(head) > 1<<10-utf8.UTFMax {
		if utf8.Valid(head) {
			return true
		}
		head = head[:len(head)-1] // a character may be cut at the end
	}
	return utf8.Valid(head)
}

// TextError refuses a text of size bytes, of which head is the beginning.
func TextError(head []byte, size int64) error {
	line := head[:min(len(head), 60)]
	if end := bytes.IndexAny(line, "\r\n"); end >= 0 {
		line = line[:end]
	}
	return transfer.Errorf(transfer.WrongFormat,
		"the file is a text of %d bytes that begins with %s, not a disk image; check the URL", size, fmt.Sprintf("%q", line))
}
