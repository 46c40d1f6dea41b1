package image

import (
	"encoding/binary"
	"hash/crc32"
	"io"
	"math/bits"

	"github.com/slipway-vm/slipway/internal/digest"
)

// Where the parts of a VHDX stand, and bounds of them; numbers are little endian. All of it
// is in Microsoft's MS-VHDX.
const (
	vhdxHeader1    = 64 << 10
	vhdxHeader2    = 128 << 10
	vhdxRegions1   = 192 << 10
	vhdxRegions2   = 256 << 10
	vhdxHeaderSize = 4 << 10
	vhdxTableSize  = 64 << 10 // of the table of regions and that of metadata
	vhdxUnit       = 1 << 20  // regions and blocks begin at multiples, behind the first
	vhdxMaxEntries = 2047
	vhdxMaxSize    = 64 << 40
	vhdxMinBlock   = 1 << 20
	vhdxMaxSpan    = 1 << 23 // sectors that one block of the disk's sector bitmap is for
)

// States of a block; those without a name read as zeros.
const (
	vhdxPresent   = 6
	vhdxPartially = 7
)

// guid is a GUID as it lies in the file.
type guid [16]byte

// Regions and pieces of metadata.
var (
	vhdxBAT        = guid{0x66, 0x77, 0xc2, 0x2d, 0x23, 0xf6, 0x00, 0x42, 0x9d, 0x64, 0x11, 0x5e, 0x9b, 0xfd, 0x4a, 0x08}
	vhdxMetadata   = guid{0x06, 0xa2, 0x7c, 0x8b, 0x90, 0x47, 0x9a, 0x4b, 0xb8, 0xfe, 0x57, 0x5f, 0x05, 0x0f, 0x88, 0x6e}
	vhdxParameters = guid{0x37, 0x67, 0xa1, 0xca, 0x36, 0xfa, 0x43, 0x4d, 0xb3, 0xb6, 0x33, 0xf0, 0xaa, 0x44, 0xe7, 0x6b}
	vhdxDiskSize   = guid{0x24, 0x42, 0xa5, 0x2f, 0x1b, 0xcd, 0x76, 0x48, 0xb2, 0x11, 0x5d, 0xbe, 0xd8, 0x3b, 0xf4, 0xb8}
	vhdxLogical    = guid{0x1d, 0xbf, 0x41, 0x81, 0x6f, 0xa9, 0x09, 0x47, 0xba, 0x47, 0xf2, 0x33, 0xa8, 0xfa, 0xab, 0x5f}
	vhdxPhysical   = guid{0xc7, 0x48, 0xa3, 0xcd, 0x5d, 0x44, 0x71, 0x44, 0x9c, 0xc9, 0xe9, 0x88, 0x52, 0x51, 0xc5, 0x56}
	vhdxDiskID     = guid{0xab, 0x12, 0xca, 0xbe, 0xe6, 0xb2, 0x23, 0x45, 0x93, 0xef, 0xc3, 0x09, 0xe0, 0x00, 0xc7, 0x46}
	vhdxParent     = guid{0x2d, 0x5f, 0xd3, 0xa8, 0x0b, 0xb3, 0x4d, 0x45, 0xab, 0xf7, 0xd3, 0xd8, 0x48, 0x34, 0xab, 0x0c}
)

// vhdx is the layout of a VHDX: a table of 8-byte entries, each with a block's state and place.
type vhdx struct {
	meta        io.ReaderAt // while the header is being read
	fileSize    int64
	size, block int64
	sector      int64
	table       extent
	metadata    []extent
}

// parseVHDX reads the header that is valid, the table of regions, and the metadata.
func parseVHDX(meta io.ReaderAt, fileSize int64) (*vhdx, error) {
	v := &vhdx{meta: meta, fileSize: fileSize, metadata: []extent{{"its header", 0, vhdxUnit}}}
	defer func() { v.meta = nil }()
	if err := v.parseHeaders(); err != nil {
		return nil, err
	}
	at, err := v.parseRegions()
	if err != nil {
		return nil, err
	}
	if err := VHDX.apart(v.metadata); err != nil {
		return nil, err
	}
	if err := v.parseMetadata(at); err != nil {
		return nil, err
	}
	return v, v.checkTable()
}

func (v *vhdx) read(e extent) ([]byte, error) {
	if err := VHDX.within(e, v.fileSize); err != nil {
		return nil, err
	}
	p := make([]byte, e.length)
	if err := readFull(v.meta, p, e.offset); err != nil {
		return nil, VHDX.cut(err, e.what, e.offset)
	}
	return p, nil
}

// parseHeaders takes the newer of the two headers that has a right checksum.
func (v *vhdx) parseHeaders() error {
	var current []byte
	for _, offset := range []int64{vhdxHeader1, vhdxHeader2} {
		p, err := v.read(extent{"its header", offset, vhdxHeaderSize})
		if err != nil {
			return err
		}
		if !vhdxSumIsRight(p, "head") {
			continue
		}
		if current == nil || binary.LittleEndian.Uint64(p[8:]) > binary.LittleEndian.Uint64(current[8:]) {
			current = p
		}
	}
	if current == nil {
		return VHDX.invalid("neither of its headers has a right checksum")
	}
	if version := binary.LittleEndian.Uint16(current[66:]); version != 1 {
		return VHDX.unsupported("has version %d", version)
	}
	if !digest.IsZero(current[48:64]) {
		return VHDX.unsupported("was not closed, so that its last changes are only in its log (mount it once where it was made, or run qemu-img check -r all on it)")
	}
	log := extent{"its log", int64(binary.LittleEndian.Uint64(current[72:])), int64(binary.LittleEndian.Uint32(current[68:]))}
	if log.length > 0 {
		v.metadata = append(v.metadata, log)
		return VHDX.within(log, v.fileSize)
	}
	return nil
}

// vhdxSumIsRight looks for the mark that a header or a table begins with, and its CRC-32C.
func vhdxSumIsRight(p []byte, mark string) bool {
	if string(p[:4]) != mark {
		return false
	}
	castagnoli := crc32.MakeTable(crc32.Castagnoli)
	sum := crc32.Update(0, castagnoli, p[:4])
	sum = crc32.Update(sum, castagnoli, make([]byte, 4)) // the checksum itself counts as zeros
	return crc32.Update(sum, castagnoli, p[8:]) == binary.LittleEndian.Uint32(p[4:])
}

// readRegions returns the table of regions, or its copy when that alone has a right checksum.
func (v *vhdx) readRegions() ([]byte, error) {
	for _, offset := range []int64{vhdxRegions1, vhdxRegions2} {
		p, err := v.read(extent{"its table of regions", offset, vhdxTableSize})
		if err != nil {
			return nil, err
		}
		if vhdxSumIsRight(p, "regi") {
			return p, nil
		}
	}
	return nil, VHDX.invalid("neither of its tables of regions has a right checksum")
}

// parseRegions finds the block table, and returns where the metadata stands.
func (v *vhdx) parseRegions() (metadata extent, err error) {
	p, err := v.readRegions()
	if err != nil {
		return extent{}, err
	}
	count := binary.LittleEndian.Uint32(p[8:])
	if count > vhdxMaxEntries {
		return extent{}, VHDX.invalid("its table of regions is said to have %d entries", count)
	}
	for n := range count {
		entry := p[16+32*n:]
		place := &v.table
		switch id, required := guid(entry[:16]), binary.LittleEndian.Uint32(entry[28:])&1 != 0; {
		case id == vhdxMetadata:
			place = &metadata
		case id != vhdxBAT && required:
			return extent{}, VHDX.unsupported("needs an unknown region")
		case id != vhdxBAT:
			continue
		}
		if place.length > 0 {
			return extent{}, VHDX.invalid("it has two regions of one kind")
		}
		*place = extent{"its table or its metadata", int64(binary.LittleEndian.Uint64(entry[16:])), int64(binary.LittleEndian.Uint32(entry[24:]))}
		if err := v.checkRegion(*place); err != nil {
			return extent{}, err
		}
	}
	if v.table.length == 0 || metadata.length < vhdxTableSize {
		return extent{}, VHDX.invalid("it has no table of blocks or no metadata")
	}
	return metadata, nil
}

// checkRegion refuses a region that cannot be one, and notes it as what no block may lie on.
func (v *vhdx) checkRegion(e extent) error {
	if err := VHDX.within(e, v.fileSize); err != nil {
		return err
	}
	if e.length == 0 || e.offset%vhdxUnit != 0 {
		return VHDX.invalid("%s is said to stand at byte %d and to have %d", e.what, e.offset, e.length)
	}
	v.metadata = append(v.metadata, e)
	return nil
}

// parseMetadata reads what the disk is like.
func (v *vhdx) parseMetadata(at extent) error {
	p, err := v.read(extent{at.what, at.offset, vhdxTableSize})
	if err != nil {
		return err
	}
	count := int(binary.LittleEndian.Uint16(p[10:]))
	if string(p[:8]) != "metadata" || count > vhdxMaxEntries {
		return VHDX.invalid("its metadata has no table, or one of %d entries", count)
	}
	for n := range count {
		entry := p[32+32*n:]
		item := extent{"a piece of metadata", at.offset + int64(binary.LittleEndian.Uint32(entry[16:])), int64(binary.LittleEndian.Uint32(entry[20:]))}
		if item.end() > at.end() {
			return VHDX.invalid("a piece of its metadata is said to end %d bytes behind all of it", item.end()-at.end())
		}
		required := binary.LittleEndian.Uint32(entry[24:])&4 != 0
		if err := v.parseItem(guid(entry[:16]), item, required); err != nil {
			return err
		}
	}
	if v.size == 0 || v.block == 0 || v.sector == 0 {
		return VHDX.invalid("its metadata does not tell the size of its disk, its blocks or its sectors")
	}
	return nil
}

func (v *vhdx) parseItem(id guid, at extent, required bool) error {
	switch id {
	case vhdxParameters:
		return v.parseParameters(at)
	case vhdxDiskSize:
		size, err := v.word(at, 8)
		if err != nil {
			return err
		}
		if size > vhdxMaxSize {
			return VHDX.invalid("its disk is said to have %d bytes", size)
		}
		v.size, err = VHDX.diskSize(size)
		return err
	case vhdxLogical:
		sector, err := v.word(at, 4)
		if err != nil {
			return err
		}
		if sector != 512 && sector != 4096 {
			return VHDX.invalid("its sectors are said to have %d bytes", sector)
		}
		v.sector = int64(sector)
	case vhdxParent:
		return errVHDXDifference
	case vhdxPhysical, vhdxDiskID:
	default:
		if required {
			return VHDX.unsupported("needs metadata of an unknown kind")
		}
	}
	return nil
}

// errVHDXDifference refuses a disk that has a parent.
var errVHDXDifference = VHDX.unsupported("holds only the difference to another image")

func (v *vhdx) parseParameters(at extent) error {
	p, err := v.word(at, 8)
	if err != nil {
		return err
	}
	if p>>32&2 != 0 {
		return errVHDXDifference
	}
	v.block = int64(p & 0xffffffff)
	if v.block < vhdxMinBlock {
		return VHDX.invalid("its blocks are said to have %d bytes", v.block)
	}
	return VHDX.blockSize(v.block)
}

// word reads a number of 4 or 8 bytes, the first of an item.
func (v *vhdx) word(at extent, width int64) (uint64, error) {
	if at.length < width {
		return 0, VHDX.invalid("%s has %d bytes instead of %d", at.what, at.length, width)
	}
	at.length = width
	p, err := v.read(at)
	if err != nil {
		return 0, err
	}
	if width == 4 {
		return uint64(binary.LittleEndian.Uint32(p)), nil
	}
	return binary.LittleEndian.Uint64(p), nil
}

// ratio is how many blocks there are to an entry of the table that is for their sectors' bitmap.
func (v *vhdx) ratio() int64 {
	return vhdxMaxSpan * v.sector >> bits.TrailingZeros64(uint64(v.block))
}

func (v *vhdx) index(number int64) int64 { return number + number/v.ratio() }

func (v *vhdx) checkTable() error {
	if v.size%v.sector != 0 {
		return VHDX.invalid("its disk is said to have %d bytes, in sectors of %d", v.size, v.sector)
	}
	need := 8 * (v.index((v.size-1)/v.block) + 1)
	if v.table.length < need {
		return VHDX.invalid("its table has %d bytes, a disk of %d bytes needs %d", v.table.length, v.size, need)
	}
	return nil
}

// DiskSize is the disk's size in bytes.
func (v *vhdx) DiskSize() int64 { return v.size }

// Open reads nothing yet.
func (v *vhdx) Open(meta io.ReaderAt, fileSize int64) (Disk, error) {
	return &blocks{
		format: VHDX, fileSize: fileSize, size: v.block, locate: v.locate, index: v.index, metadata: v.metadata,
		table: newBlockTable(meta, v.table, 8, binary.LittleEndian),
	}, nil
}

func (v *vhdx) locate(entry uint64) (int64, error) {
	switch state := entry & 7; state {
	case vhdxPresent:
		if entry > 1<<62 {
			return 0, VHDX.invalid("a block is said to stand at MiB %d", entry>>20)
		}
		return int64(entry >> 20 << 20), nil
	case vhdxPartially:
		return 0, VHDX.invalid("a block is said to lie in part in another image")
	case 4:
		return 0, VHDX.invalid("a block is in the unknown state %d", state)
	}
	return absent, nil
}
