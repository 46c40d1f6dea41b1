package image

import (
	"io"
)

// extent is a stretch of the file.
type extent struct {
	what           string // for messages
	offset, length int64
}

func (e extent) end() int64 { return e.offset + e.length }

// absent is where a block lies that reads as zeros.
const absent = -1

// blocks is what VDI, VHD and VHDX have in common: blocks of one size, each of which lies in
// the file in one piece or not at all. Its methods may be called from many goroutines.
type blocks struct {
	format   Format
	fileSize int64
	size     int64 // of a block
	table    *blockTable
	// locate says where in the file the block of a table's entry has its first byte, or absent.
	locate func(entry uint64) (int64, error)
	// index is where in the table the block of a number has its entry.
	index func(number int64) int64
	// metadata is what no block may lie on.
	metadata []extent
}

// Unit is less than a block, for none is packed.
func (*blocks) Unit() int64 { return MinUnit }

// Read fills p with the disk's bytes at off through r, which is the caller's own reader of
// the file. It reports whether anything is allocated there; where nothing is, p is left as it was.
func (b *blocks) Read(r io.ReaderAt, p []byte, off int64) (allocated bool, err error) {
	return readClusters(b, r, p, off)
}

func (b *blocks) clusterSize() int64 { return b.size }

func (b *blocks) readCluster(pending *stretch, part []byte, off int64) (bool, error) {
	number := off / b.size
	at := number
	if b.index != nil {
		at = b.index(number)
	}
	entry, err := b.table.entry(at)
	if err != nil {
		return false, b.cut(err, "its table", b.table.offset)
	}
	host, err := b.locate(entry)
	if err != nil || host == absent {
		return false, err
	}
	if err := b.check(number, host); err != nil {
		return false, err
	}
	return true, pending.add(part, host+off%b.size)
}

// check refuses a block that lies outside of the file or on its metadata.
func (b *blocks) check(number, host int64) error {
	if host < 0 || host >= b.fileSize {
		return b.format.invalid("block %d is said to stand at byte %d, the file has only %d; it is truncated", number, host, b.fileSize)
	}
	for _, m := range b.metadata {
		if host < m.end() && m.offset-b.size < host {
			return b.format.invalid("block %d at byte %d overlaps %s", number, host, m.what)
		}
	}
	return nil
}

func (b *blocks) cut(err error, what string, at int64) error { return b.format.cut(err, what, at) }

// within refuses a stretch that the file does not have.
func (f Format) within(e extent, fileSize int64) error {
	if e.offset < 0 || e.length < 0 || e.offset > fileSize || e.length > fileSize-e.offset {
		return f.invalid("%s is said to stand at byte %d and to have %d, the file has only %d; it is truncated", e.what, e.offset, e.length, fileSize)
	}
	return nil
}

// apart refuses stretches that lie on each other.
func (f Format) apart(extents []extent) error {
	for n, a := range extents {
		for _, b := range extents[:n] {
			if a.offset < b.end() && b.offset < a.end() {
				return f.invalid("%s at byte %d overlaps %s", a.what, a.offset, b.what)
			}
		}
	}
	return nil
}
