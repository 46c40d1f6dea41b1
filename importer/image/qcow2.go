package image

import (
	"encoding/binary"
	"fmt"
	"io"
	"math/bits"
	"slices"
)

// Bounds of what a qcow2 header may say; QEMU has the same.
const (
	minClusterBits = 9
	maxClusterBits = 21
	maxL1Bytes     = 32 << 20
	headerV2       = 72
	headerV3       = 104
)

// Bits of a qcow2 header's incompatible features.
const (
	featureDirty = 1 << iota
	featureCorrupt
	featureExternalData
	featureCompression
	featureExtendedL2
)

// Masks of table entries.
const (
	offsetMask     = 0x00fffffffffffe00
	compressedFlag = 1 << 62
	zeroFlag       = 1
)

// QCOW2Header is what the first bytes of a qcow2 file say.
type QCOW2Header struct {
	Version int
	// Size is the disk's size in bytes.
	Size int64

	clusterBits int
	l1Offset    int64
	l1Entries   int // as many as the size needs
	extended    bool
	zstd        bool
}

// ParseQCOW2 reads a header from a file's first bytes and refuses what is not supported or
// contradicts itself. Nothing in it is trusted: every bound is checked before it is used.
func ParseQCOW2(head []byte) (*QCOW2Header, error) {
	if len(head) < headerV2 || string(head[:4]) != "QFI\xfb" {
		return nil, invalid("its header is cut off")
	}
	h := &QCOW2Header{Version: int(binary.BigEndian.Uint32(head[4:]))}
	if h.Version != 2 && h.Version != 3 {
		return nil, unsupported("has version %d", h.Version)
	}
	if binary.BigEndian.Uint64(head[8:]) != 0 {
		return nil, unsupported("has the backing file %q", backingName(head))
	}
	if method := binary.BigEndian.Uint32(head[32:]); method != 0 {
		return nil, unsupported("is encrypted")
	}
	if err := h.parseFeatures(head); err != nil {
		return nil, err
	}
	return h, h.parseGeometry(head)
}

func (h *QCOW2Header) parseFeatures(head []byte) error {
	if h.Version < 3 {
		return nil
	}
	if len(head) < headerV3 {
		return invalid("its header is cut off")
	}
	features := binary.BigEndian.Uint64(head[72:])
	switch {
	case features&featureCorrupt != 0:
		return invalid("it is marked as corrupt; repair it with qemu-img check -r all")
	case features&featureExternalData != 0:
		return unsupported("keeps its data in another file")
	}
	if unknown := features &^ (featureDirty | featureCompression | featureExtendedL2); unknown != 0 {
		return unsupported("needs the unknown feature bit %d", bits.TrailingZeros64(unknown))
	}
	h.extended = features&featureExtendedL2 != 0
	length := binary.BigEndian.Uint32(head[100:])
	if length < headerV3 || int64(length) > int64(len(head)) {
		return invalid("its header says that it is %d bytes long", length)
	}
	if features&featureCompression != 0 {
		if length <= headerV3 {
			return invalid("its header names no compression type")
		}
		switch kind := head[headerV3]; kind {
		case 0:
		case 1:
			h.zstd = true
		default:
			return unsupported("is compressed in the unknown way %d", kind)
		}
	}
	return nil
}

func (h *QCOW2Header) parseGeometry(head []byte) error {
	clusterBits := binary.BigEndian.Uint32(head[20:])
	if clusterBits < minClusterBits || clusterBits > maxClusterBits {
		return invalid("its clusters are said to have 2^%d bytes", clusterBits)
	}
	h.clusterBits = int(clusterBits)
	if h.extended && h.clusterBits < 14 {
		return invalid("its clusters of %d bytes are too small for subclusters", 1<<h.clusterBits)
	}
	size := binary.BigEndian.Uint64(head[24:])
	if size > 1<<62 {
		return invalid("its disk is said to have %d bytes", size)
	}
	if size == 0 {
		return invalid("its disk has no bytes")
	}
	h.Size = int64(size)
	span := uint64(h.clusterSize()) * uint64(h.l2Entries())
	need := (size-1)/span + 1
	stated := uint64(binary.BigEndian.Uint32(head[36:]))
	if need*8 > maxL1Bytes {
		return invalid("its disk is said to have %d bytes, for which its table would be too large", size)
	}
	if stated < need {
		return invalid("its table has %d entries, a disk of %d bytes needs %d", stated, size, need)
	}
	h.l1Entries = int(need)
	offset := binary.BigEndian.Uint64(head[40:])
	if offset == 0 || offset%uint64(h.clusterSize()) != 0 || offset > 1<<62 {
		return invalid("its table is said to stand at byte %d", offset)
	}
	h.l1Offset = int64(offset)
	return nil
}

func (h *QCOW2Header) clusterSize() int64 { return 1 << h.clusterBits }

// l2Words is how many 8-byte words an L2 entry has.
func (h *QCOW2Header) l2Words() int {
	if h.extended {
		return 2
	}
	return 1
}

func (h *QCOW2Header) l2Entries() int { return int(h.clusterSize()) / 8 / h.l2Words() }

// Image is an open qcow2 file. Its methods may be called from many goroutines.
type Image struct {
	*QCOW2Header
	fileSize int64
	l1       []uint64 // offsets of L2 tables, 0 where there is none
	tables   []int64  // the same, sorted, to find clusters that overlap them
	cache    *tableCache
	codecs   codecPool
}

// DiskSize is the disk's size in bytes.
func (h *QCOW2Header) DiskSize() int64 { return h.Size }

// Open reads the image's first table.
func (h *QCOW2Header) Open(meta io.ReaderAt, fileSize int64) (Disk, error) {
	i, err := openQCOW2(h, meta, fileSize)
	if err != nil {
		return nil, err
	}
	return i, nil
}

func openQCOW2(header *QCOW2Header, meta io.ReaderAt, fileSize int64) (*Image, error) {
	if end := header.l1Offset + int64(8*header.l1Entries); end > fileSize {
		return nil, invalid("its table ends at byte %d, the file has only %d; it is truncated", end, fileSize)
	}
	i := &Image{QCOW2Header: header, fileSize: fileSize, l1: make([]uint64, 0, header.l1Entries)}
	for raw := make([]byte, 64<<10); len(i.l1) < header.l1Entries; {
		raw = raw[:min(len(raw), 8*(header.l1Entries-len(i.l1)))]
		at := header.l1Offset + int64(8*len(i.l1))
		if err := readFull(meta, raw, at); err != nil {
			return nil, i.cut(err, "its table", at)
		}
		for n := 0; n < len(raw); n += 8 {
			i.l1 = append(i.l1, binary.BigEndian.Uint64(raw[n:])&offsetMask)
		}
	}
	if err := i.checkTables(); err != nil {
		return nil, err
	}
	i.cache = newTableCache(meta, i.clusterSize())
	i.codecs.zstd = header.zstd
	return i, nil
}

// checkTables refuses second-level tables that lie outside of the file, on the first
// table, on the header, or on each other.
func (i *Image) checkTables() error {
	for n, offset := range i.l1 {
		if offset == 0 {
			continue
		}
		if err := i.checkCluster(int64(offset), fmt.Sprintf("table %d", n)); err != nil {
			return err
		}
		i.tables = append(i.tables, int64(offset))
	}
	slices.Sort(i.tables)
	for n := 1; n < len(i.tables); n++ {
		if i.tables[n] == i.tables[n-1] {
			return invalid("two of its tables stand at byte %d", i.tables[n])
		}
	}
	return nil
}

// checkCluster refuses a cluster that is not a cluster's multiple, lies outside of the file
// or on the header or the first table.
func (i *Image) checkCluster(offset int64, what string) error {
	size := i.clusterSize()
	l1End := i.l1Offset + int64(8*len(i.l1))
	switch {
	case offset%size != 0:
		return invalid("%s is said to stand at byte %d, inside of a cluster", what, offset)
	case offset == 0:
		return invalid("%s is said to stand on the header", what)
	case offset < l1End && offset+size > i.l1Offset:
		return invalid("%s at byte %d overlaps its first table", what, offset)
	case offset >= i.fileSize:
		return invalid("%s is said to stand at byte %d, the file has only %d; it is truncated", what, offset, i.fileSize)
	}
	return nil
}

func (i *Image) cut(err error, what string, at int64) error { return QCOW2.cut(err, what, at) }

// backingName is the name of the file that the image is based on, as far as head holds it.
func backingName(head []byte) string {
	offset, length := binary.BigEndian.Uint64(head[8:]), uint64(binary.BigEndian.Uint32(head[16:]))
	if offset > uint64(len(head)) || length > 1023 || offset+length > uint64(len(head)) {
		return "?"
	}
	return string(head[offset : offset+length])
}

func invalid(format string, args ...any) error { return QCOW2.invalid(format, args...) }

func unsupported(format string, args ...any) error { return QCOW2.unsupported(format, args...) }
