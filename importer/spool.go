package importer

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"

	"golang.org/x/sync/errgroup"

	"github.com/slipway-vm/slipway/importer/image"
	"github.com/slipway-vm/slipway/internal/transfer"
)

// spool is a stream that can be read at any offset: its bytes go to a scratch file as they
// come, and a reader of what has not come yet waits. An image that lies in order, as most
// do, is so read while it is downloaded, and its scratch hardly leaves the page cache.
type spool struct {
	file *os.File

	mu    sync.Mutex
	grown *sync.Cond
	size  int64
	limit int64 // the most bytes that the stream may have
	idle  bool  // nobody reads any more: what still comes is not kept
	end   error // why no more bytes come; io.EOF at the stream's end
}

// newSpool makes a spool of at most limit bytes at path, whose name is gone at once, so that nothing is left of it.
func newSpool(path string, limit int64) (*spool, error) {
	err := os.Remove(path) // an earlier attempt's; of a link itself, not what it leads to
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, transfer.Errorf(transfer.TargetFailed, "removing an earlier scratch file: %w", err)
	}
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return nil, transfer.Errorf(transfer.TargetFailed, "making a scratch file: %w", err)
	}
	s := &spool{file: file, limit: limit}
	s.grown = sync.NewCond(&s.mu)
	if err := os.Remove(path); err != nil {
		return nil, transfer.Errorf(transfer.TargetFailed, "making a scratch file: %w", err)
	}
	return s, nil
}

// fill copies the stream to its end.
func (s *spool) fill(stream io.Reader) error {
	buffer := make([]byte, 256<<10)
	for {
		n, end, err := fillUnit(stream, buffer)
		if failure := s.keep(buffer[:n]); failure != nil {
			err = failure
		}
		if end && err == nil {
			err = io.EOF
		}
		s.note(n, err)
		if err == io.EOF { //nolint:errorlint // set above
			return nil
		}
		if err != nil {
			return fmt.Errorf("reading the file: %w", err)
		}
	}
}

// keep writes what came last, unless it is of no use.
func (s *spool) keep(data []byte) error {
	s.mu.Lock()
	size, limit, idle := s.size, s.limit, s.idle
	s.mu.Unlock()
	if size+int64(len(data)) > limit {
		return transfer.Errorf(transfer.InvalidImage,
			"the image has more than %d bytes, over twice its disk's size; convert it anew, or let its server answer range requests for the unpacked image and give no checksum", limit)
	}
	if idle {
		return nil
	}
	if _, err := s.file.WriteAt(data, size); err != nil {
		return transfer.Errorf(transfer.NoSpace,
			"the image comes as a stream, and its scratch cannot be written: %w; let its server answer range requests and give no checksum, or take a larger volume", err)
	}
	return nil
}

func (s *spool) note(n int, end error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.size += int64(n)
	if s.end == nil {
		s.end = end
	}
	s.grown.Broadcast()
}

// bound lets the stream of a disk of size bytes have as many as such an image needs.
func (s *spool) bound(size int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.limit = min(s.limit, transfer.Scratch(size))
}

// rest says that nobody reads any more.
func (s *spool) rest() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.idle = true
}

// ReadAt waits for the bytes, or for the reason why they do not come.
func (s *spool) ReadAt(p []byte, off int64) (int, error) {
	s.mu.Lock()
	for s.end == nil && s.size < off+int64(len(p)) {
		s.grown.Wait()
	}
	size, end := s.size, s.end
	s.mu.Unlock()
	if end != nil && end != io.EOF && size < off+int64(len(p)) { //nolint:errorlint // set by fill
		return 0, fmt.Errorf("reading the file: %w", end)
	}
	return s.file.ReadAt(p, off) //nolint:wrapcheck // io.ReaderAt's contract: io.EOF as it is
}

// Close does nothing, for many readers share the spool.
func (s *spool) Close() error { return nil }

// spool writes an image with tables, of fileSize bytes (-1 when not known), that comes as a stream.
func (j *job) spool(ctx context.Context, format image.Format, stream io.Reader, head []byte, fileSize int64) error {
	if fileSize < 0 {
		fileSize = image.UnknownSize
	}
	scratch, err := newSpool(scratchPath(j.options), transfer.Scratch(j.disk.Capacity()))
	if err != nil {
		return err
	}
	defer scratch.file.Close()
	group, ctx := errgroup.WithContext(ctx)
	stop := context.AfterFunc(ctx, func() { scratch.note(0, ctx.Err()) })
	defer stop()
	group.Go(func() error { return scratch.fill(&interrupted{stream, ctx.Err}) })
	group.Go(func() error {
		f := file{scratch, func(context.Context) reader { return scratch }, fileSize}
		layout, err := j.parse(format, head, f)
		if err != nil {
			return err
		}
		scratch.bound(layout.DiskSize())
		defer scratch.rest()
		return j.fromLayout(ctx, layout, f)
	})
	return group.Wait() //nolint:wrapcheck // both say what they were doing
}

// interrupted is a stream that ends with an error once nobody wants it any more.
type interrupted struct {
	io.Reader
	ended func() error
}

func (i *interrupted) Read(p []byte) (int, error) {
	if err := i.ended(); err != nil {
		return 0, fmt.Errorf("stopping: %w", err)
	}
	return i.Reader.Read(p) //nolint:wrapcheck // io.Reader's contract
}
