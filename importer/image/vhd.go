package image

import (
	"encoding/binary"
	"io"
)

// Fields of a VHD footer and of the header of a dynamic one; numbers are big endian. Both
// are in Microsoft's Virtual Hard Disk Image Format Specification.
const (
	vhdFooterSize  = 512
	vhdHeaderSize  = 1024
	vhdVersion     = 0x00010000
	vhdFixed       = 2
	vhdDynamic     = 3
	vhdDiffering   = 4
	vhdFree        = 0xffffffff
	vhdSector      = 512
	vhdFooterSum   = 64 // where a footer has its checksum
	vhdHeaderSum   = 36
	vhdFooterMagic = "conectix"
	vhdHeaderMagic = "cxsparse"
)

// vhdFooter is what the last sector of a VHD says; a dynamic one begins with a copy.
type vhdFooter struct {
	kind   uint32
	header uint64 // where the header of a dynamic disk stands
	size   int64
}

func parseVHDFooter(p []byte) (*vhdFooter, error) {
	if len(p) < vhdFooterSize {
		return nil, VHD.invalid("its header is cut off")
	}
	p = p[:vhdFooterSize]
	if !vhdSumIsRight(p, vhdFooterSum) {
		return nil, VHD.invalid("its footer has a wrong checksum")
	}
	if version := binary.BigEndian.Uint32(p[12:]); version>>16 != vhdVersion>>16 {
		return nil, VHD.unsupported("has version %d.%d", version>>16, version&0xffff)
	}
	f := &vhdFooter{kind: binary.BigEndian.Uint32(p[60:]), header: binary.BigEndian.Uint64(p[16:])}
	if f.kind == vhdDiffering {
		return nil, VHD.unsupported("holds only the difference to another image")
	}
	var err error
	f.size, err = VHD.diskSize(binary.BigEndian.Uint64(p[48:]))
	return f, err
}

// vhdSumIsRight compares the checksum at at: the complement of the sum of all other bytes.
func vhdSumIsRight(p []byte, at int) bool {
	sum := uint32(0)
	for n, b := range p {
		if n < at || n >= at+4 {
			sum += uint32(b)
		}
	}
	return ^sum == binary.BigEndian.Uint32(p[at:])
}

// vhd is the layout of a dynamic VHD: a table of 4-byte numbers of sectors, where each block
// has a bitmap of its sectors and then its data. The bitmap matters in differencing disks
// only: sectors of a dynamic one that were never written hold zeros.
type vhd struct {
	size, block int64
	bitmap      int64 // bytes before the data of a block
	metadata    []extent
	table       extent
}

// parseVHD reads the copy of the footer in head, and the header.
func parseVHD(head []byte, meta io.ReaderAt, fileSize int64) (*vhd, error) {
	footer, err := parseVHDFooter(head)
	if err != nil {
		return nil, err
	}
	if footer.kind != vhdDynamic {
		return nil, VHD.invalid("it begins as a dynamic disk and is said to be of the kind %d", footer.kind)
	}
	if footer.header > 1<<62 || footer.header < vhdFooterSize {
		return nil, VHD.invalid("its header is said to stand at byte %d", footer.header)
	}
	at := extent{"its header", int64(footer.header), vhdHeaderSize}
	if err := VHD.within(at, fileSize); err != nil {
		return nil, err
	}
	header := make([]byte, vhdHeaderSize)
	if err := readFull(meta, header, at.offset); err != nil {
		return nil, VHD.cut(err, at.what, at.offset)
	}
	v := &vhd{size: footer.size, metadata: []extent{{"the copy of its footer", 0, vhdFooterSize}, at}}
	if err := v.parseHeader(header); err != nil {
		return nil, err
	}
	if err := VHD.within(v.table, fileSize); err != nil {
		return nil, err
	}
	return v, VHD.apart(v.metadata)
}

func (v *vhd) parseHeader(p []byte) error {
	if string(p[:len(vhdHeaderMagic)]) != vhdHeaderMagic || !vhdSumIsRight(p, vhdHeaderSum) {
		return VHD.invalid("where its header should stand is none, or one with a wrong checksum")
	}
	v.block = int64(binary.BigEndian.Uint32(p[32:]))
	if err := VHD.blockSize(v.block); err != nil {
		return err
	}
	need := (v.size-1)/v.block + 1
	if stated := int64(binary.BigEndian.Uint32(p[28:])); stated < need {
		return VHD.invalid("its table has %d entries, a disk of %d bytes needs %d", stated, v.size, need)
	}
	offset := binary.BigEndian.Uint64(p[16:])
	if offset > 1<<62 {
		return VHD.invalid("its table is said to stand at byte %d", offset)
	}
	v.table = extent{"its table", int64(offset), 4 * need}
	v.metadata = append(v.metadata, v.table)
	sectors := v.block / vhdSector
	v.bitmap = ((sectors+7)/8 + vhdSector - 1) / vhdSector * vhdSector
	return nil
}

// DiskSize is the disk's size in bytes.
func (v *vhd) DiskSize() int64 { return v.size }

// Open reads nothing yet.
func (v *vhd) Open(meta io.ReaderAt, fileSize int64) (Disk, error) {
	return &blocks{
		format: VHD, fileSize: fileSize, size: v.block, locate: v.locate, metadata: v.metadata,
		table: newBlockTable(meta, v.table, 4, binary.BigEndian),
	}, nil
}

func (v *vhd) locate(entry uint64) (int64, error) {
	if entry == vhdFree {
		return absent, nil
	}
	return int64(entry)*vhdSector + v.bitmap, nil
}

// FixedVHD returns the size of the disk in a file of size bytes that ends with tail: a fixed
// VHD is a raw disk and a footer. It returns false when the file has none.
func FixedVHD(tail []byte, size int64) (int64, bool, error) {
	if len(tail) < vhdFooterSize {
		return 0, false, nil
	}
	tail = tail[len(tail)-vhdFooterSize:]
	if string(tail[:len(vhdFooterMagic)]) != vhdFooterMagic {
		return 0, false, nil
	}
	footer, err := parseVHDFooter(tail)
	switch {
	case err != nil:
		return 0, false, err
	case footer.kind != vhdFixed:
		return 0, false, VHD.invalid("it ends as a VHD of the kind %d and does not begin as one", footer.kind)
	case footer.size != size-vhdFooterSize:
		return 0, false, VHD.invalid("its disk is said to have %d bytes, the file has %d before its footer", footer.size, size-vhdFooterSize)
	}
	return footer.size, true, nil
}

// VHDFooterSize is how many last bytes of a file FixedVHD wants.
const VHDFooterSize = vhdFooterSize
