package stepcache

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/slipway-vm/slipway/internal/digest"
)

// errHalf is the error of a device that is neither the disk before nor the entry's.
var errHalf = errors.New("the device is half rewritten")

// rewrite makes the device Target the entry's disk, by writing the blocks that differ. Nothing is
// written before the entry was read whole and found right; an error after the first write is errHalf.
func (w Work) rewrite(ctx context.Context) (err error) {
	found, err := digestLike(ctx, w.Entry, w.Digest)
	if err == nil {
		err = w.check(found)
	}
	if err != nil {
		return err
	}
	source, err := os.Open(w.Entry)
	if err != nil {
		return fmt.Errorf("opening the entry's disk: %w", err)
	}
	defer func() { err = errors.Join(err, source.Close()) }()
	target, err := os.OpenFile(w.Target, os.O_RDWR|unix.O_EXCL, 0) // a device has one such opener, on all of the node
	if errors.Is(err, unix.EBUSY) {
		return fmt.Errorf("opening the device: %w: a pod of an earlier try may still write to it; try again", err)
	}
	if err != nil {
		return fmt.Errorf("opening the device: %w", err)
	}
	defer func() { err = errors.Join(err, target.Close()) }()
	d := &device{File: target, buffers: make(chan []byte, readers)}
	if found, err = d.become(ctx, source, w.Digest); err == nil {
		err = w.check(found)
	}
	return d.half(err)
}

// half is errHalf, with its cause, once a write has begun.
func (d *device) half(err error) error {
	if err != nil && d.changed.Load() {
		return fmt.Errorf("%w: %w", errHalf, err)
	}
	return err
}

// device is a disk that is rewritten.
type device struct {
	*os.File
	// changed says that a write has begun.
	changed atomic.Bool
	// buffers are what its own blocks are read into.
	buffers chan []byte
}

// become gives the device the content of source, and returns the digest of what was read from there,
// by the version of the digest want.
func (d *device) become(ctx context.Context, source *os.File, want string) (string, error) {
	tree, err := digest.Like(want)
	if err != nil {
		return "", fmt.Errorf("copying the entry's disk: %w", err)
	}
	size, err := source.Seek(0, io.SeekEnd)
	if err != nil {
		return "", fmt.Errorf("finding the size of the entry's disk: %w", err)
	}
	have, err := d.Seek(0, io.SeekEnd)
	if err != nil {
		return "", fmt.Errorf("finding the device's size: %w", err)
	}
	if have != size {
		return "", fmt.Errorf("the device has %d bytes, the entry's disk %d", have, size)
	}
	for range readers {
		d.buffers <- make([]byte, digest.BlockSize)
	}
	visited := make([]bool, (size+digest.BlockSize-1)/digest.BlockSize)
	if _, err := eachBlock(ctx, source, func(index int64, block []byte) error {
		visited[index] = true
		tree.Put(index, block)
		return d.put(index, block)
	}); err != nil {
		return "", fmt.Errorf("copying the entry's disk: %w", err)
	}
	zeros := make([]byte, digest.BlockSize)
	for index := range visited {
		if ctx.Err() != nil {
			return "", fmt.Errorf("copying the entry's disk: %w", ctx.Err())
		}
		if at := int64(index) * digest.BlockSize; !visited[index] { // a hole of the entry's disk
			if err := d.put(int64(index), zeros[:min(digest.BlockSize, size-at)]); err != nil {
				return "", err
			}
		}
	}
	if err := d.Sync(); err != nil {
		return "", fmt.Errorf("flushing the device: %w", err)
	}
	return tree.Sum(size), nil
}

// put writes the block unless the device has it already.
func (d *device) put(index int64, block []byte) error {
	buffer := <-d.buffers
	defer func() { d.buffers <- buffer }()
	at := index * digest.BlockSize
	have := buffer[:len(block)]
	if _, err := d.ReadAt(have, at); err != nil {
		return fmt.Errorf("reading the device at %d: %w", at, err)
	}
	if bytes.Equal(have, block) {
		return nil
	}
	d.changed.Store(true)
	if digest.IsZero(block) && unix.Fallocate(int(d.Fd()), unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, at, int64(len(block))) == nil {
		return nil
	}
	if _, err := d.WriteAt(block, at); err != nil {
		return fmt.Errorf("writing the device at %d: %w", at, err)
	}
	return nil
}
