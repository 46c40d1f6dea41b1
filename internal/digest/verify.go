package digest

import (
	"bytes"
	"context"
	"fmt"
	"io"

	"golang.org/x/sync/errgroup"
)

// zeros is a block of zeros to compare with and to pad from.
var zeros [BlockSize]byte

// IsZero reports whether p is all zero bytes.
func IsZero(p []byte) bool {
	for len(p) > BlockSize {
		if !bytes.Equal(p[:BlockSize], zeros[:]) {
			return false
		}
		p = p[BlockSize:]
	}
	return bytes.Equal(p, zeros[:len(p)])
}

// Of reads a disk of size bytes from r, with the given number of parallel readers, and returns its digest.
func Of(ctx context.Context, r io.ReaderAt, size int64, readers int) (string, error) {
	tree := New()
	blocks := (size + BlockSize - 1) / BlockSize
	group, ctx := errgroup.WithContext(ctx)
	for worker := range int64(max(readers, 1)) {
		group.Go(func() error {
			buffer := make([]byte, BlockSize)
			for index := worker; index < blocks; index += int64(max(readers, 1)) {
				if err := ctx.Err(); err != nil {
					return fmt.Errorf("reading the disk: %w", err)
				}
				block := buffer[:min(BlockSize, size-index*BlockSize)]
				if n, err := r.ReadAt(block, index*BlockSize); n < len(block) {
					return fmt.Errorf("reading the disk at %d: %w", index*BlockSize, err)
				}
				tree.Put(index, block)
			}
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		return "", fmt.Errorf("computing a disk's digest: %w", err)
	}
	return tree.Sum(size), nil
}
