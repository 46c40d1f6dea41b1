package image

import (
	"encoding/binary"
	"io"

	"github.com/slipway-vm/slipway/internal/digest"
)

// Fields of a VDI header, as VirtualBox writes it; numbers are little endian.
const (
	vdiVersion    = 0x44
	vdiType       = 0x4c
	vdiMap        = 0x154
	vdiData       = 0x158
	vdiSectorSize = 0x168
	vdiDiskSize   = 0x170
	vdiBlockSize  = 0x178
	vdiBlockExtra = 0x17c
	vdiBlocks     = 0x180
	vdiAllocated  = 0x184
	vdiLink       = 0x1a8 // the uuids of the image that this one is a difference to, and of its state
	vdiHeaderEnd  = 0x1c8
)

// Kinds of VDI images, and what the map says of a block that is nowhere in the file.
const (
	vdiDynamic   = 1
	vdiStatic    = 2
	vdiUndo      = 3
	vdiDiffering = 4
	vdiFree      = 0xffffffff
	vdiZero      = 0xfffffffe
)

// Bounds of the block size of images in general, in bytes.
const (
	minBlock = 512
	maxBlock = 256 << 20
)

// vdi is the layout of a VDI image: a map of 4-byte numbers of blocks, then the blocks.
type vdi struct {
	size, block int64
	table       extent
	data        int64 // where block 0 of the file begins
	allocated   uint64
}

// parseVDI reads the header from the file's first bytes.
func parseVDI(head []byte, fileSize int64) (*vdi, error) {
	if len(head) < vdiHeaderEnd {
		return nil, VDI.invalid("its header is cut off")
	}
	word := func(at int) int64 { return int64(binary.LittleEndian.Uint32(head[at:])) }
	if version := word(vdiVersion); version>>16 != 1 {
		return nil, VDI.unsupported("has version %d.%d", version>>16, version&0xffff)
	}
	switch kind := word(vdiType); {
	case kind == vdiUndo || kind == vdiDiffering || !digest.IsZero(head[vdiLink:vdiHeaderEnd]):
		return nil, VDI.unsupported("holds only the difference to another image")
	case kind != vdiDynamic && kind != vdiStatic:
		return nil, VDI.invalid("it is said to be of the unknown kind %d", kind)
	case word(vdiSectorSize) != 512:
		return nil, VDI.unsupported("has sectors of %d bytes", word(vdiSectorSize))
	case word(vdiBlockExtra) != 0:
		return nil, VDI.unsupported("has %d bytes of something else before each block", word(vdiBlockExtra))
	}
	v := &vdi{block: word(vdiBlockSize), data: word(vdiData), allocated: uint64(word(vdiAllocated))}
	var err error
	if v.size, err = VDI.diskSize(binary.LittleEndian.Uint64(head[vdiDiskSize:])); err != nil {
		return nil, err
	}
	if err := VDI.blockSize(v.block); err != nil {
		return nil, err
	}
	need := (v.size-1)/v.block + 1
	if stated := word(vdiBlocks); stated < need {
		return nil, VDI.invalid("it is said to have %d blocks, a disk of %d bytes needs %d", stated, v.size, need)
	}
	v.table = extent{"its map of blocks", word(vdiMap), 4 * need}
	if v.table.offset < vdiHeaderEnd || v.data < v.table.end() {
		return nil, VDI.invalid("its map is said to stand at byte %d and its data at byte %d", v.table.offset, v.data)
	}
	return v, VDI.within(v.table, fileSize)
}

// DiskSize is the disk's size in bytes.
func (v *vdi) DiskSize() int64 { return v.size }

// Open reads nothing yet.
func (v *vdi) Open(meta io.ReaderAt, fileSize int64) (Disk, error) {
	return &blocks{
		format: VDI, fileSize: fileSize, size: v.block, locate: v.locate,
		table: newBlockTable(meta, v.table, 4, binary.LittleEndian),
	}, nil
}

func (v *vdi) locate(entry uint64) (int64, error) {
	switch {
	case entry == vdiFree || entry == vdiZero:
		return absent, nil
	case entry >= v.allocated:
		return 0, VDI.invalid("its map names block %d of the file, which is said to have %d", entry, v.allocated)
	}
	return v.data + int64(entry)*v.block, nil // 2^32 blocks of at most 2^28 bytes
}

// diskSize refuses a size that no disk has.
func (f Format) diskSize(size uint64) (int64, error) {
	if size == 0 {
		return 0, f.invalid("its disk has no bytes")
	}
	if size > 1<<62 {
		return 0, f.invalid("its disk is said to have %d bytes", size)
	}
	return int64(size), nil
}

// blockSize refuses blocks that are no power of two, or too small or too large for any use.
func (f Format) blockSize(size int64) error {
	if size < minBlock || size > maxBlock || size&(size-1) != 0 {
		return f.invalid("its blocks are said to have %d bytes", size)
	}
	return nil
}
