// Package qcow2 writes a disk as a qcow2 image from its first byte to its last, so that it can be
// sent while it is made. The disk is read twice: once to find out which of its clusters hold
// something, from which all tables and the image's size follow, and once for the content.
package qcow2

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/bits"

	"golang.org/x/sys/unix"
)

// Geometry of the images: clusters of 64 KiB, 16 bits a reference count.
const (
	clusterBits = 16
	cluster     = 1 << clusterBits
	perTable    = cluster / 8 // entries of a table of 8 bytes each
	perRefcount = cluster / 2 // entries of a block of reference counts
	sector      = 512
)

// readBytes is how much is read at once.
const readBytes = 16 * cluster

// Disk is what is read: a file or a block device.
type Disk interface {
	io.ReaderAt
	Fd() uintptr
}

// Plan says which clusters of a disk hold something, and so where everything is in the image.
type Plan struct {
	size   int64 // of the disk in bytes
	used   []uint64
	count  int64 // of used clusters
	tables int64 // number of second-level tables

	l1, refTable, refBlocks int64 // their lengths in clusters
}

// Read reads the disk of size bytes once and returns the plan of its image. Holes are passed
// over, and zeros are not stored. progress, if not nil, learns how many bytes are done.
func Read(ctx context.Context, disk Disk, size int64, progress func(done int64)) (*Plan, error) {
	p := &Plan{size: (size + sector - 1) / sector * sector}
	p.used = make([]uint64, (p.clusters()+63)/64)
	buffer := make([]byte, readBytes)
	for at := int64(0); at < size; {
		start, end := nextData(disk, at, size)
		for at = start / cluster * cluster; at < end; at += readBytes {
			if err := ctx.Err(); err != nil {
				return nil, fmt.Errorf("reading the disk: %w", err)
			}
			if err := p.mark(disk, buffer[:min(readBytes, size-at)], at); err != nil {
				return nil, err
			}
			if progress != nil {
				progress(min(at+readBytes, size))
			}
		}
	}
	p.layOut()
	return p, nil
}

// nextData returns where data begins at or after at, and where it ends; both are size when
// there is none. A disk that cannot tell is all data.
func nextData(disk Disk, at, size int64) (start, end int64) {
	start, err := unix.Seek(int(disk.Fd()), at, unix.SEEK_DATA)
	switch {
	case errors.Is(err, unix.ENXIO):
		return size, size
	case err != nil:
		return at, size
	}
	if end, err = unix.Seek(int(disk.Fd()), start, unix.SEEK_HOLE); err != nil {
		return start, size
	}
	return min(start, size), min(end, size)
}

// mark reads what buffer holds at offset at and notes the clusters that are not zero.
func (p *Plan) mark(disk Disk, buffer []byte, at int64) error {
	if _, err := disk.ReadAt(buffer, at); err != nil && !errors.Is(err, io.EOF) {
		return fmt.Errorf("reading the disk at %d: %w", at, err)
	}
	for index := at / cluster; len(buffer) > 0; index++ {
		n := min(cluster, len(buffer))
		if word, bit := index/64, uint64(1)<<(index%64); p.used[word]&bit == 0 && !isZero(buffer[:n]) {
			p.used[word] |= bit
			p.count++
		}
		buffer = buffer[n:]
	}
	return nil
}

var zeros [cluster]byte

func isZero(data []byte) bool { return bytes.Equal(data, zeros[:len(data)]) }

// layOut computes the lengths of the tables. Reference counts count their own clusters too, so
// their length is found by trying.
func (p *Plan) layOut() {
	p.tables = 0
	for table := range (p.clusters() + perTable - 1) / perTable {
		if p.tableUsed(table) > 0 {
			p.tables++
		}
	}
	p.l1 = max(1, (p.l1Entries()+perTable-1)/perTable)
	p.refTable, p.refBlocks = 1, 1
	for {
		blocks := (p.total() + perRefcount - 1) / perRefcount
		table := (blocks + perTable - 1) / perTable
		if blocks == p.refBlocks && table == p.refTable {
			return
		}
		p.refBlocks, p.refTable = blocks, table
	}
}

// clusters is how many the disk has.
func (p *Plan) clusters() int64 { return (p.size + cluster - 1) / cluster }

// l1Entries is how many second-level tables there could be.
func (p *Plan) l1Entries() int64 { return (p.clusters() + perTable - 1) / perTable }

// total is how many clusters the image has.
func (p *Plan) total() int64 {
	return 1 + p.refTable + p.refBlocks + p.l1 + p.tables + p.count
}

// tableUsed is how many clusters of the disk second-level table number table points to.
func (p *Plan) tableUsed(table int64) int64 {
	n := 0
	for word := table * perTable / 64; word < min((table+1)*perTable/64, int64(len(p.used))); word++ {
		n += bits.OnesCount64(p.used[word])
	}
	return int64(n)
}

// isUsed says whether a cluster of the disk is stored.
func (p *Plan) isUsed(index int64) bool { return p.used[index/64]&(1<<(index%64)) != 0 }

// Size is the image's size in bytes.
func (p *Plan) Size() int64 { return p.total() * cluster }

// Data is how many bytes of the disk are stored.
func (p *Plan) Data() int64 { return p.count * cluster }
