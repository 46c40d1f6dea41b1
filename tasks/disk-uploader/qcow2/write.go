package qcow2

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// copied marks a table's entry whose cluster is used once.
const copied = 1 << 63

// Write reads the disk again and writes its image, of Size bytes, to w.
func (p *Plan) Write(ctx context.Context, w io.Writer, disk io.ReaderAt) error {
	for _, part := range []func(io.Writer) error{p.writeHeader, p.writeRefcounts, p.writeL1, p.writeL2} {
		if err := part(w); err != nil {
			return fmt.Errorf("writing the image's tables: %w", err)
		}
	}
	buffer := make([]byte, readBytes)
	for index := int64(0); index < p.clusters(); {
		if err := ctx.Err(); err != nil {
			return fmt.Errorf("writing the image: %w", err)
		}
		run := p.run(index)
		if run == 0 {
			index++
			continue
		}
		if err := p.copy(w, disk, buffer[:run*cluster], index*cluster); err != nil {
			return err
		}
		index += run
	}
	return nil
}

// run is how many clusters from index on are stored, as far as they are read at once.
func (p *Plan) run(index int64) int64 {
	n := int64(0)
	for n < readBytes/cluster && index+n < p.clusters() && p.isUsed(index+n) {
		n++
	}
	return n
}

// copy writes what the disk holds at offset at, with zeros beyond its end.
func (p *Plan) copy(w io.Writer, disk io.ReaderAt, buffer []byte, at int64) error {
	n, err := disk.ReadAt(buffer, at)
	switch {
	case errors.Is(err, io.EOF):
		clear(buffer[n:])
	case err != nil:
		return fmt.Errorf("reading the disk at %d: %w", at, err)
	}
	if _, err := w.Write(buffer); err != nil {
		return fmt.Errorf("writing the image: %w", err)
	}
	return nil
}

// Clusters of the image where its parts begin: header, reference counts, tables, data.
func (p *Plan) refTableAt() int64  { return 1 }
func (p *Plan) refBlocksAt() int64 { return p.refTableAt() + p.refTable }
func (p *Plan) l1At() int64        { return p.refBlocksAt() + p.refBlocks }
func (p *Plan) l2At() int64        { return p.l1At() + p.l1 }
func (p *Plan) dataAt() int64      { return p.l2At() + p.tables }

// writeHeader writes the header of version 3, which has no extensions.
func (p *Plan) writeHeader(w io.Writer) error {
	const headerLength, refcountOrder = 104, 4
	head := make([]byte, cluster)
	copy(head, "QFI\xfb")
	be := binary.BigEndian
	be.PutUint32(head[4:], 3)
	be.PutUint32(head[20:], clusterBits)
	be.PutUint64(head[24:], uint64(p.size))
	be.PutUint32(head[36:], uint32(p.l1Entries()))
	be.PutUint64(head[40:], uint64(p.l1At()*cluster))
	be.PutUint64(head[48:], uint64(p.refTableAt()*cluster))
	be.PutUint32(head[56:], uint32(p.refTable))
	be.PutUint32(head[96:], refcountOrder)
	be.PutUint32(head[100:], headerLength)
	_, err := w.Write(head)
	return err //nolint:wrapcheck // the caller says what is written
}

// writeRefcounts writes the table of the blocks of reference counts, and the blocks: each
// cluster of the image is used once.
func (p *Plan) writeRefcounts(w io.Writer) error {
	if err := writeEntries(w, p.refTable, func(i int64) uint64 {
		if i >= p.refBlocks {
			return 0
		}
		return uint64((p.refBlocksAt() + i) * cluster)
	}); err != nil {
		return err
	}
	block := make([]byte, cluster)
	for left := p.total(); left > 0; left -= perRefcount {
		clear(block)
		for i := range min(left, perRefcount) {
			block[2*i+1] = 1
		}
		if _, err := w.Write(block); err != nil {
			return err //nolint:wrapcheck // the caller says what is written
		}
	}
	return nil
}

// writeL1 writes the first-level table, which points to the second-level tables that are there.
func (p *Plan) writeL1(w io.Writer) error {
	next := p.l2At()
	return writeEntries(w, p.l1, func(i int64) uint64 {
		if i >= p.l1Entries() || p.tableUsed(i) == 0 {
			return 0
		}
		next++
		return uint64((next-1)*cluster) | copied
	})
}

// writeL2 writes the second-level tables, which point to the data in the order of the disk.
func (p *Plan) writeL2(w io.Writer) error {
	next := p.dataAt()
	for table := range p.l1Entries() {
		if p.tableUsed(table) == 0 {
			continue
		}
		err := writeEntries(w, 1, func(i int64) uint64 {
			index := table*perTable + i
			if index >= p.clusters() || !p.isUsed(index) {
				return 0
			}
			next++
			return uint64((next-1)*cluster) | copied
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// writeEntries writes tables of 8 bytes an entry that fill so many clusters.
func writeEntries(w io.Writer, clusters int64, entry func(i int64) uint64) error {
	buffer := make([]byte, cluster)
	for c := range clusters {
		for i := range int64(perTable) {
			binary.BigEndian.PutUint64(buffer[8*i:], entry(c*perTable+i))
		}
		if _, err := w.Write(buffer); err != nil {
			return err //nolint:wrapcheck // the caller says what is written
		}
	}
	return nil
}
