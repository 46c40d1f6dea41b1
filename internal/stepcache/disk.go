package stepcache

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"

	"github.com/slipway-vm/slipway/internal/digest"
)

// readers is how many goroutines read a disk.
const readers = 2

// DiskDigest returns the digest of the disk at path, a file or a device, as it lies there.
// Holes of a sparse file are not read. The file's data is on the storage when it returns.
func DiskDigest(ctx context.Context, path string) (string, error) {
	return sum(ctx, path, digest.New())
}

// digestLike is DiskDigest by the version of the digest want, to compare with it.
func digestLike(ctx context.Context, path, want string) (string, error) {
	tree, err := digest.Like(want)
	if err != nil {
		return "", fmt.Errorf("computing a disk's digest: %w", err)
	}
	return sum(ctx, path, tree)
}

// sum puts the content of the disk at path into tree and returns its digest.
func sum(ctx context.Context, path string, tree *digest.Tree) (string, error) {
	file, err := os.Open(path)
	if err != nil {
		return "", fmt.Errorf("computing a disk's digest: %w", err)
	}
	if err := file.Sync(); err != nil {
		return "", errors.Join(fmt.Errorf("flushing %s: %w", path, err), file.Close())
	}
	size, err := eachBlock(ctx, file, func(index int64, block []byte) error {
		tree.Put(index, block)
		return nil
	})
	if err := errors.Join(err, file.Close()); err != nil {
		return "", fmt.Errorf("computing the digest of %s: %w", path, err)
	}
	return tree.Sum(size), nil
}

// eachBlock calls visit with each block of the disk that may hold data, from several goroutines
// and in no order, and returns the disk's size. The last block may be short.
func eachBlock(ctx context.Context, file *os.File, visit func(index int64, block []byte) error) (int64, error) {
	size, err := file.Seek(0, io.SeekEnd)
	if err != nil {
		return 0, fmt.Errorf("finding its size: %w", err)
	}
	indexes := make(chan int64, 2*readers)
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error {
		defer close(indexes)
		return dataBlocks(ctx, file, size, indexes)
	})
	for range readers {
		group.Go(func() error {
			buffer := make([]byte, digest.BlockSize)
			for index := range indexes {
				block := buffer[:min(digest.BlockSize, size-index*digest.BlockSize)]
				if _, err := file.ReadAt(block, index*digest.BlockSize); err != nil {
					return fmt.Errorf("reading at %d: %w", index*digest.BlockSize, err)
				}
				if err := visit(index, block); err != nil {
					return err
				}
			}
			return nil
		})
	}
	return size, group.Wait() //nolint:wrapcheck // the goroutines' own errors
}

// dataBlocks sends the index of each block that lies in no hole, in their order.
func dataBlocks(ctx context.Context, file *os.File, size int64, to chan<- int64) error {
	next := int64(0)
	for offset := int64(0); offset < size; {
		start, end, err := extent(file, offset, size)
		if err != nil {
			return err
		}
		for index := max(next, start/digest.BlockSize); index*digest.BlockSize < end; index++ {
			select {
			case to <- index:
				next = index + 1
			case <-ctx.Done():
				return fmt.Errorf("reading the disk: %w", ctx.Err())
			}
		}
		offset = end
	}
	return nil
}

// extent returns where the first data at or after offset begins and ends; both are size when
// there is none. What cannot tell its holes is all data.
func extent(file *os.File, offset, size int64) (start, end int64, err error) {
	fd := int(file.Fd())
	start, err = unix.Seek(fd, offset, unix.SEEK_DATA)
	switch {
	case errors.Is(err, unix.ENXIO):
		return size, size, nil
	case errors.Is(err, unix.EINVAL):
		return offset, size, nil
	case err != nil:
		return 0, 0, fmt.Errorf("looking for data at %d: %w", offset, err)
	}
	end, err = unix.Seek(fd, start, unix.SEEK_HOLE)
	if err != nil {
		return 0, 0, fmt.Errorf("looking for a hole at %d: %w", start, err)
	}
	return start, min(end, size), nil
}
