package image

import (
	"errors"
	"fmt"
	"io"

	"github.com/slipway-vm/slipway/internal/transfer"
)

// clusters is an image that cuts its disk into clusters of one size, by tables that say
// where in the file each of them lies.
type clusters interface {
	// clusterSize is the size of a cluster in bytes.
	clusterSize() int64
	// readCluster reads the disk's bytes at off, all of one cluster, into part, or notes them to
	// be read with their neighbours. It returns false, and leaves part as it is, when nothing is there.
	readCluster(pending *stretch, part []byte, off int64) (held bool, err error)
	// cut is the error of bytes that the file should have and has not.
	cut(err error, what string, at int64) error
}

// readClusters fills p with the disk's bytes at off through r. It reports whether anything
// is allocated there; where nothing is, p is left as it was.
func readClusters(from clusters, r io.ReaderAt, p []byte, off int64) (allocated bool, err error) {
	size := from.clusterSize()
	pending := stretch{reader: r, from: from}
	for at := int64(0); at < int64(len(p)); {
		end := min(at+size-(off+at)%size, int64(len(p)))
		held, err := from.readCluster(&pending, p[at:end], off+at)
		switch {
		case err != nil:
			return false, fmt.Errorf("reading the disk at %d: %w", off+at, err)
		case held && !allocated:
			allocated = true
			clear(p[:at])
		case !held && allocated:
			clear(p[at:end])
		}
		at = end
	}
	if err := pending.flush(); err != nil {
		return false, fmt.Errorf("reading the disk at %d: %w", off, err)
	}
	return allocated, nil
}

// stretch joins reads of neighbouring clusters into one.
type stretch struct {
	reader io.ReaderAt
	from   clusters
	dest   []byte
	host   int64
}

// add notes that part is to be filled from host on. Parts are neighbours in memory when
// they come one after the other.
func (s *stretch) add(part []byte, host int64) error {
	joined := len(s.dest) + len(part)
	if len(s.dest) > 0 && s.host+int64(len(s.dest)) == host && cap(s.dest) >= joined && &s.dest[:joined][len(s.dest)] == &part[0] {
		s.dest = s.dest[:joined]
		return nil
	}
	if err := s.flush(); err != nil {
		return err
	}
	s.dest, s.host = part, host
	return nil
}

// unshared is a reader that lets go what was read; unless it is told otherwise, all but the last sector, of which a packed
// cluster may have left the rest to another.
type unshared interface {
	// Unshared reads what shares none of its sectors with anything else.
	Unshared() io.ReaderAt
}

func (s *stretch) flush() error {
	if len(s.dest) == 0 {
		return nil
	}
	reader := s.reader
	if all, ok := reader.(unshared); ok {
		reader = all.Unshared()
	}
	err := readFull(reader, s.dest, s.host)
	if err != nil {
		return s.from.cut(err, "a data cluster", s.host)
	}
	s.dest = nil
	return nil
}

func readFull(r io.ReaderAt, p []byte, off int64) error {
	n, err := r.ReadAt(p, off)
	if n == len(p) {
		return nil
	}
	if err == nil {
		return io.ErrUnexpectedEOF
	}
	return err //nolint:wrapcheck // the caller says what it was reading
}

// cut is the error of bytes at at that a file of the format should have and has not.
func (f Format) cut(err error, what string, at int64) error {
	if _, ok := errors.AsType[*transfer.Error](err); ok {
		return err // a broken connection, say, which may have io.EOF in its chain
	}
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return f.invalid("%s stands at byte %d, the file ends before; it is truncated", what, at)
	}
	return fmt.Errorf("reading a %s image: %w", f, err)
}

// invalid is the error of an image that contradicts itself.
func (f Format) invalid(format string, args ...any) error {
	return transfer.Errorf(transfer.InvalidImage, "the %s image is broken: %w; publish it anew (qemu-img check names more)", f, fmt.Errorf(format, args...))
}

// unsupported is the error of an image that may be right and is refused.
func (f Format) unsupported(format string, args ...any) error {
	return transfer.Errorf(transfer.WrongFormat, "the %s image %w, which is not supported; publish it as one file (qemu-img convert -O qcow2)", f, fmt.Errorf(format, args...))
}
