// Package image knows the forms in which disks are published: raw and qcow2, either of
// them also packed with gzip, xz or zstd. Other forms are refused by name.
package image

import (
	"bytes"
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
	Gzip  Format = "gz"
	XZ    Format = "xz"
	Zstd  Format = "zst"
)

// HeadSize is how many first bytes Detect looks at.
const HeadSize = 4 << 10

// Compressed reports whether f wraps another format.
func (f Format) Compressed() bool { return f == Gzip || f == XZ || f == Zstd }

var magics = []struct {
	format Format
	magic  string
}{
	{QCOW2, "QFI\xfb"},
	{Gzip, "\x1f\x8b"},
	{XZ, "\xfd7zXZ\x00"},
	{Zstd, "\x28\xb5\x2f\xfd"},
}

// refused are the formats that are known and not read: where their mark stands, and what they are.
var refused = []struct {
	at    int
	magic string
	name  string
}{
	{0, "KDMV", "a VMDK disk"},
	{0, "# Disk DescriptorFile", "a VMDK descriptor"},
	{0x40, "\x7f\x10\xda\xbe", "a VDI disk"},
	{0, "conectix", "a VHD disk"},
	{0, "vhdxfile", "a VHDX disk"},
	{0, "QED\x00", "a QED disk"},
	{0, "WithoutFreeSpace", "a Parallels disk"},
	{0, "WithouFreSpacExt", "a Parallels disk"},
	{0, "PK\x03\x04", "a zip archive"},
	{0, "BZh", "a bzip2 stream"},
	{0, "7z\xbc\xaf\x27\x1c", "a 7-Zip archive"},
	{0, "\x04\x22\x4d\x18", "an LZ4 stream"},
	{0x101, "ustar", "a tar archive"},
}

// Detect tells the format from a file's first bytes, of which it wants HeadSize or all.
// Whatever has no mark is raw, for a raw disk may begin with anything.
func Detect(head []byte) (Format, error) {
	for _, m := range magics {
		if bytes.HasPrefix(head, []byte(m.magic)) {
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

// Packing tells with what a file is packed, whatever it holds; it is empty for a file that is not.
func Packing(head []byte) Format {
	for _, m := range magics {
		if m.format.Compressed() && bytes.HasPrefix(head, []byte(m.magic)) {
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
