// Package reflink copies the data of files: by sharing their blocks (FICLONE) where the
// file system can, which takes no time and no space, and otherwise by an honest copy of
// the parts that hold data. Holes stay holes either way.
package reflink

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// Method says how a file's data came to its copy.
type Method string

// The methods of copying.
const (
	Shared Method = "reflink"
	Copied Method = "copy"
)

// chunk is how much one step of an honest copy moves at the most, in bytes.
const chunk = 8 << 20

// File gives dst, an empty file open for writing, the data and the size of src.
// progress, which may be nil, hears the number of bytes of each step of an honest copy;
// ctx ends one between two steps. dst is not synced. ErrChanged says that src was written to during an honest copy.
func File(ctx context.Context, dst, src *os.File, progress func(bytes int64)) (Method, error) {
	method, _, err := file(ctx, dst, src, progress)
	return method, err
}

// file is File, and returns the moment of src that an honest copy is of.
func file(ctx context.Context, dst, src *os.File, progress func(bytes int64)) (Method, moment, error) {
	err := unix.IoctlFileClone(int(dst.Fd()), int(src.Fd()))
	if err == nil {
		return Shared, moment{}, nil
	}
	if !cannotShare(err) {
		return Shared, moment{}, fmt.Errorf("sharing the blocks of %s: %w", src.Name(), err)
	}
	if progress == nil {
		progress = func(int64) {}
	}
	before, err := settled(ctx, src)
	if err != nil {
		return Copied, before, err
	}
	if err := copySparse(ctx, dst, src, progress); err != nil {
		return Copied, before, err
	}
	info, err := src.Stat()
	if err != nil {
		return Copied, before, fmt.Errorf("looking at %s after its copy: %w", src.Name(), err)
	}
	return Copied, before, before.compare(src.Name(), info)
}

// cannotShare tells errors that mean "not on this file system" from real ones.
func cannotShare(err error) bool {
	for _, unable := range []error{unix.EOPNOTSUPP, unix.EXDEV, unix.EINVAL, unix.ENOTTY, unix.ENOSYS, unix.EPERM, unix.ETXTBSY} {
		if errors.Is(err, unable) {
			return true
		}
	}
	return false
}

func copySparse(ctx context.Context, dst, src *os.File, progress func(int64)) error {
	info, err := src.Stat()
	if err != nil {
		return fmt.Errorf("reading the size of %s: %w", src.Name(), err)
	}
	if err := dst.Truncate(info.Size()); err != nil {
		return fmt.Errorf("sizing %s: %w", dst.Name(), err)
	}
	for offset := int64(0); offset < info.Size(); {
		start, end, err := nextData(src, offset, info.Size())
		if err != nil {
			return fmt.Errorf("finding the data of %s: %w", src.Name(), err)
		}
		if err := copyRange(ctx, dst, src, extent{start, end}, progress); err != nil {
			return fmt.Errorf("copying %s at %d: %w", src.Name(), start, err)
		}
		offset = end
	}
	return nil
}

// nextData returns the next part of src, from offset on, that holds data;
// an empty part at size when there is none.
func nextData(src *os.File, offset, size int64) (start, end int64, err error) {
	fd := int(src.Fd())
	start, err = unix.Seek(fd, offset, unix.SEEK_DATA)
	switch {
	case errors.Is(err, unix.ENXIO):
		return size, size, nil
	case errors.Is(err, unix.EINVAL), errors.Is(err, unix.EOPNOTSUPP):
		return offset, size, nil // the file system does not know its holes
	case err != nil:
		return 0, 0, fmt.Errorf("seeking data after %d: %w", offset, err)
	}
	end, err = unix.Seek(fd, start, unix.SEEK_HOLE)
	if err != nil {
		return 0, 0, fmt.Errorf("seeking the hole after %d: %w", start, err)
	}
	return start, min(end, size), nil
}

// extent is the part of a file from start to before end, in bytes.
type extent struct{ start, end int64 }

func copyRange(ctx context.Context, dst, src *os.File, part extent, progress func(int64)) error {
	step := copyInKernel
	for offset := part.start; offset < part.end; {
		if err := ctx.Err(); err != nil {
			return fmt.Errorf("stopped before the end: %w", err)
		}
		n, err := step(dst, src, offset, min(chunk, part.end-offset))
		if errors.Is(err, errNotInKernel) {
			step = copyBuffered
			continue
		}
		if err != nil {
			return err
		}
		if n == 0 {
			return nil // src shrank meanwhile; the rest stays a hole
		}
		offset += n
		progress(n)
	}
	return nil
}

var errNotInKernel = errors.New("the kernel cannot copy between these files")

func copyInKernel(dst, src *os.File, offset, length int64) (int64, error) {
	from, to := offset, offset
	n, err := unix.CopyFileRange(int(src.Fd()), &from, int(dst.Fd()), &to, int(length), 0)
	if err != nil && cannotShare(err) {
		return 0, errNotInKernel
	}
	if err != nil {
		return 0, fmt.Errorf("copying in the kernel: %w", err)
	}
	return int64(n), nil
}

func copyBuffered(dst, src *os.File, offset, length int64) (int64, error) {
	n, err := io.Copy(io.NewOffsetWriter(dst, offset), io.NewSectionReader(src, offset, length))
	if err != nil {
		return n, fmt.Errorf("copying through memory: %w", err)
	}
	return n, nil
}
