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

// spool is a stream that can be read at any offset, by readers that wait for what has not come
// yet. The last of it is in memory. An image that lies in order, as most do, is so read while it
// is downloaded, and hardly anything of it goes to the scratch file: its tables, and what a reader
// did not want when it came.
type spool struct {
	mu      sync.Mutex
	changed *sync.Cond
	window  window
	size    int64         // bytes that have come
	limit   int64         // the most bytes that the stream may have
	wanted  map[int64]int // how many readers wait until so many bytes have come
	idle    bool          // nobody reads any more: what still comes is not kept
	end     error         // why no more bytes come; io.EOF at the stream's end
}

// newSpool makes a spool of at most limit bytes with a scratch file at path, whose name is gone at once, so
// that nothing is left of it.
func newSpool(path string, limit int64) (*spool, error) {
	err := os.Remove(path) // an earlier attempt's; of a link itself, not what it leads to
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, transfer.Errorf(transfer.TargetFailed, "removing an earlier scratch file: %w", err)
	}
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return nil, transfer.Errorf(transfer.TargetFailed, "making a scratch file: %w", err)
	}
	s := &spool{window: window{scratch: file, pages: map[int64]int64{}, held: map[int64]*piece{}}, limit: limit, wanted: map[int64]int{}}
	s.changed = sync.NewCond(&s.mu)
	if err := os.Remove(path); err != nil {
		return nil, transfer.Errorf(transfer.TargetFailed, "making a scratch file: %w", err)
	}
	return s, nil
}

// fill copies the stream to its end.
func (s *spool) fill(stream io.Reader) error {
	for {
		room, err := s.room()
		if err != nil {
			return err
		}
		n, end, err := fillUnit(stream, room.data)
		if end && err == nil {
			err = io.EOF
		}
		switch err = s.keep(room, n, err); {
		case err == io.EOF: //nolint:errorlint // set above
			return nil
		case err != nil:
			return fmt.Errorf("reading the file: %w", err)
		}
	}
}

// room returns a slab for what comes next. When the window is full it waits for readers that
// have something to do; once one waits for what is to come, the oldest pieces must go.
func (s *spool) room() (*slab, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for {
		if s.end != nil {
			return nil, fmt.Errorf("reading the file: %w", s.end)
		}
		if room := s.window.room(); room != nil {
			return room, nil
		}
		if !s.awaited() {
			s.changed.Wait()
			continue
		}
		if err := s.window.evict(); err != nil {
			s.note(err)
			return nil, err
		}
	}
}

// awaited reports whether a reader waits for what is to come. One may still be counted that has been
// woken, for what is there.
func (s *spool) awaited() bool {
	for size := range s.wanted {
		if size > s.size {
			return true
		}
	}
	return false
}

// await waits until size bytes have come, or no more do. The lock is held.
func (s *spool) await(size int64) {
	if s.end != nil || s.size >= size {
		return
	}
	s.wanted[size]++
	s.changed.Broadcast() // the window may be full
	for s.end == nil && s.size < size {
		s.changed.Wait()
	}
	if s.wanted[size]--; s.wanted[size] == 0 {
		delete(s.wanted, size)
	}
}

// keep adds what came last, n bytes in a slab, to the window, unless it is of no use, and notes why no more comes.
func (s *spool) keep(from *slab, n int, end error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.size+int64(n) > s.limit {
		end = transfer.Errorf(transfer.InvalidImage,
			"the image has more than %d bytes, over twice its disk's size; convert it anew, or let its server answer range requests for the unpacked image and give no checksum", s.limit)
	} else {
		s.window.hold(s.size/pieceSize, from, n)
		s.size += int64(n)
		if s.idle {
			s.window.releaseAll()
		}
	}
	s.note(end)
	return end
}

// note keeps the first reason why no more bytes come, and wakes all who wait. The lock is held.
func (s *spool) note(end error) {
	if s.end == nil {
		s.end = end
	}
	s.changed.Broadcast()
}

// stop ends the stream for a reason.
func (s *spool) stop(cause error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.note(cause)
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
	s.window.releaseAll()
	s.changed.Broadcast()
}

// ReadAt waits for the bytes, or for the reason why they do not come.
func (s *spool) ReadAt(p []byte, off int64) (int, error) { return s.read(p, off, 0) }

// once reads a spool, and what it has read nobody reads again: data, and no tables.
type once struct{ *spool }

// ReadAt reads as the spool's does. The last sector is not given up: of a packed cluster it may
// hold the beginning of another.
func (o once) ReadAt(p []byte, off int64) (int, error) {
	return o.read(p, off, (off+int64(len(p)))/sectorSize*sectorSize-sectorSize)
}

// Unshared reads clusters that are not packed: none of their sectors holds anything else.
func (o once) Unshared() io.ReaderAt { return alone(o) }

// Close does nothing, for many readers share the spool.
func (once) Close() error { return nil }

// alone reads a spool as once does, and gives the last sector up as well.
type alone struct{ *spool }

func (a alone) ReadAt(p []byte, off int64) (int, error) { return a.read(p, off, off+int64(len(p))) }

// read reads piece after piece, as they come, and gives up the sectors that end before end.
func (s *spool) read(p []byte, off, end int64) (n int, err error) {
	for n < len(p) {
		at := off + int64(n)
		number, within := at/pieceSize, at%pieceSize
		part := p[n:min(len(p), n+int(pieceSize-within))]
		got, err := s.readPiece(number, within, part, end-number*pieceSize)
		n += got
		if err != nil {
			return n, err
		}
	}
	return n, nil
}

// readPiece reads bytes of a piece from off in it, and gives up those of them that end before end.
func (s *spool) readPiece(number, off int64, part []byte, end int64) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	begin := number*pieceSize + off
	s.await(begin + int64(len(part)))
	var short error
	if missing := begin + int64(len(part)) - s.size; missing > 0 {
		if s.end != io.EOF { //nolint:errorlint // set by fill
			return 0, fmt.Errorf("reading the file: %w", s.end)
		}
		part, short = part[:max(0, int64(len(part))-missing)], io.EOF
	}
	if len(part) == 0 {
		return 0, short
	}
	if held := s.window.held[number]; held != nil {
		copy(part, held.data[off:])
		if s.window.use(number, off, min(off+int64(len(part)), end)) {
			s.changed.Broadcast()
		}
		return len(part), short
	}
	kept, err := s.window.find(number)
	if err != nil {
		return 0, err
	}
	s.mu.Unlock() // others need not wait for the file
	err = kept.read(s.window.scratch, number, part, off)
	s.mu.Lock()
	if err != nil {
		return 0, err
	}
	return len(part), short
}

// spool writes an image with tables, of fileSize bytes (-1 when not known), that comes as a stream.
func (j *job) spool(ctx context.Context, format image.Format, stream io.Reader, head []byte, fileSize int64) error {
	if fileSize < 0 {
		fileSize = image.UnknownSize
	}
	scratch, err := newSpool(scratchPath(j.options), transfer.Scratch(j.disk.Capacity()))
	if err != nil {
		return err
	}
	defer scratch.window.scratch.Close()
	group, ctx := errgroup.WithContext(ctx)
	stop := context.AfterFunc(ctx, func() { scratch.stop(ctx.Err()) })
	defer stop()
	group.Go(func() error { return scratch.fill(&interrupted{stream, ctx.Err}) })
	group.Go(func() error {
		f := file{meta: scratch, open: func(context.Context) reader { return once{scratch} }, size: fileSize, inOrder: true}
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
