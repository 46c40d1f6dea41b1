package image

import (
	"encoding/binary"
	"io"
	"sync"
)

// Bounds of the memory that tables take: all that are kept, and one stretch of a long one.
const (
	tableCacheBytes = 16 << 20
	tablePage       = 64 << 10
)

// tableCache keeps the tables, or stretches of them, that were used last.
type tableCache struct {
	limit int

	mu     sync.Mutex
	meta   io.ReaderAt
	tables map[int64][]byte
	order  []int64 // the oldest first
}

// newTableCache returns a cache of tables of at most size bytes each, which meta reads.
func newTableCache(meta io.ReaderAt, size int64) *tableCache {
	return &tableCache{limit: max(4, int(tableCacheBytes/size)), meta: meta, tables: map[int64][]byte{}}
}

// get returns length bytes at offset, always as many for one offset. Readers in ascending
// order hit the cache but once per table.
func (c *tableCache) get(offset, length int64) ([]byte, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if table, ok := c.tables[offset]; ok {
		return table, nil
	}
	table := make([]byte, length)
	if err := readFull(c.meta, table, offset); err != nil {
		return nil, err
	}
	if len(c.order) >= c.limit {
		delete(c.tables, c.order[0])
		c.order = c.order[1:]
	}
	c.tables[offset] = table
	c.order = append(c.order, offset)
	return table, nil
}

// blockTable is a table that lies in the file in one piece, with an entry for each block of the disk.
type blockTable struct {
	cache   *tableCache
	offset  int64
	entries int64
	width   int64 // bytes of an entry: 4 or 8
	order   binary.ByteOrder
}

func newBlockTable(meta io.ReaderAt, at extent, width int64, order binary.ByteOrder) *blockTable {
	return &blockTable{cache: newTableCache(meta, tablePage), offset: at.offset, entries: at.length / width, width: width, order: order}
}

// entry returns the entry of the given index, below the table's length.
func (t *blockTable) entry(index int64) (uint64, error) {
	start := index * t.width / tablePage * tablePage
	raw, err := t.cache.get(t.offset+start, min(tablePage, t.entries*t.width-start))
	if err != nil {
		return 0, err
	}
	raw = raw[index*t.width-start:]
	if t.width == 4 {
		return uint64(t.order.Uint32(raw)), nil
	}
	return t.order.Uint64(raw), nil
}
