package pool

import (
	"errors"
	"fmt"
	"os"

	"github.com/slipway-vm/slipway/internal/beneath"
)

// Expand makes a volume hold bytes, also while it is in use, and returns what it is then. Nothing shrinks.
//
// The data grows first, then the record: after a crash between the two a volume of files is as it was, and
// a device counts as large as it is.
func (p *Pool) Expand(name string, bytes int64) (Record, error) {
	record, err := p.lookup(volumes, name)
	if err != nil {
		return record, err
	}
	bytes = max(bytes, record.Capacity)
	switch {
	case record.Block:
		err = p.grow(name, bytes)
	case record.Subvolume:
		err = p.limitAgain(name, bytes)
	default:
		err = p.setLimit(record, bytes)
	}
	if err != nil || record.Capacity == bytes {
		return record, err
	}
	record.Capacity = bytes
	if err := p.prepare(volumes.records); err != nil {
		return record, err
	}
	return record, p.write(volumes, record)
}

// grow makes the disk of a block volume at least that large, with a hole at its end.
func (p *Pool) grow(name string, bytes int64) error {
	disk, err := beneath.Open(p.root, name, os.O_RDWR)
	if err != nil {
		return fmt.Errorf("opening %s of pool %s: %w", name, p.name, err)
	}
	defer disk.Close()
	info, err := disk.Stat()
	if err != nil {
		return fmt.Errorf("reading the size of %s of pool %s: %w", name, p.name, err)
	}
	if info.Size() >= bytes {
		return nil
	}
	if err := errors.Join(disk.Truncate(bytes), disk.Sync()); err != nil {
		return fmt.Errorf("growing %s of pool %s to %d bytes: %w", name, p.name, bytes, err)
	}
	return nil
}
