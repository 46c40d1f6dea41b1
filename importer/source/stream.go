package source

import (
	"context"
	"errors"
	"fmt"
	"io"

	"golang.org/x/sync/errgroup"

	"github.com/slipway-vm/slipway/internal/transfer"
)

// Pieces that a stream fetches ahead of its reader.
const (
	pieceSize = 1 << 20
	fetchers  = 4
	pieces    = fetchers + 1 // as many as the queue holds, and the one that is being read
)

// Stream reads the file once, in order, from its first byte. A ranged source is fetched by
// several connections ahead of the reader and survives broken ones; any other is one
// answer, and a break ends it. The caller closes the stream.
func (h *HTTP) Stream(ctx context.Context) (io.ReadCloser, error) {
	if h.ranged {
		return h.prefetch(ctx), nil
	}
	response := h.first
	h.first = nil
	ctx, cancel := context.WithCancelCause(ctx)
	if response == nil {
		var err error
		if response, err = h.whole(ctx); err != nil {
			cancel(nil)
			return nil, err
		}
	}
	return &plain{body: watch(ctx, response.Body, func(cause error) {
		cancel(cause)
		_ = response.Body.Close() // the first answer was asked for before this context was
	}, h.options.IdleTimeout, h.limit), source: h, ctxErr: ctx.Err}, nil
}

// plain is the body of a server without ranges.
type plain struct {
	body   io.ReadCloser
	source *HTTP
	ctxErr func() error
	pos    int64
}

func (p *plain) Read(b []byte) (int, error) {
	if err := p.ctxErr(); err != nil {
		return 0, p.lost(err)
	}
	n, err := p.body.Read(b)
	p.pos += int64(n)
	p.source.counter.Add(int64(n))
	switch {
	case errors.Is(err, io.EOF) && p.source.size >= 0 && p.pos < p.source.size:
		return n, p.lost(io.ErrUnexpectedEOF)
	case err != nil && !errors.Is(err, io.EOF):
		return n, p.lost(err)
	}
	return n, err //nolint:wrapcheck // nil or io.EOF
}

func (p *plain) lost(err error) error {
	return transfer.Errorf(transfer.ConnectionLost,
		"the connection to %s broke at byte %d: %w; its server cannot continue a download, so the import begins anew", p.source.Name(), p.pos, err)
}

func (p *plain) Close() error {
	return p.body.Close() //nolint:wrapcheck // the caller says what it was closing
}

// piece is a stretch of the file, or why it cannot be read.
type piece struct {
	data []byte
	err  error
}

// ordered hands out pieces in the file's order while others are fetched.
type ordered struct {
	queue  chan chan piece // in order; each gives one piece
	free   chan []byte
	cancel context.CancelFunc
	wait   func() error
	cause  func() error // why the fetching was ended
	left   int64        // bytes that no piece has given yet
	whole  []byte       // the buffer of the current piece
	rest   []byte       // what is left of it
	err    error
}

func (h *HTTP) prefetch(ctx context.Context) *ordered {
	ctx, cancel := context.WithCancel(ctx)
	group, ctx := errgroup.WithContext(ctx)
	o := &ordered{
		queue: make(chan chan piece, fetchers), free: make(chan []byte, pieces), cancel: cancel, wait: group.Wait,
		cause: ctx.Err, left: h.size,
	}
	type job struct {
		off int64
		out chan piece
	}
	jobs := make(chan job)
	for range pieces {
		o.free <- nil // a buffer that is made when first used
	}
	group.Go(func() error {
		defer close(jobs)
		defer close(o.queue)
		for off := int64(0); off < h.size; off += pieceSize {
			out := make(chan piece, 1)
			select {
			case o.queue <- out:
			case <-ctx.Done():
				return nil
			}
			select {
			case jobs <- job{off, out}:
			case <-ctx.Done():
				out <- piece{err: fmt.Errorf("reading %s: %w", h.Name(), ctx.Err())}
				return nil
			}
		}
		return nil
	})
	for range fetchers {
		group.Go(func() error {
			cursor := h.Cursor(ctx)
			defer cursor.drop()
			for j := range jobs {
				j.out <- h.fetch(cursor, <-o.free, j.off)
			}
			return nil
		})
	}
	return o
}

func (h *HTTP) fetch(cursor *Cursor, buffer []byte, off int64) piece {
	if buffer == nil {
		buffer = make([]byte, pieceSize)
	}
	data := buffer[:min(pieceSize, h.size-off)]
	if n, err := cursor.ReadAt(data, off); n < len(data) {
		return piece{err: err}
	}
	return piece{data: data}
}

func (o *ordered) Read(p []byte) (int, error) {
	for len(o.rest) == 0 && o.err == nil {
		o.next()
	}
	if len(o.rest) == 0 {
		return 0, o.err
	}
	n := copy(p, o.rest)
	o.rest = o.rest[n:]
	return n, nil
}

func (o *ordered) next() {
	if o.whole != nil {
		o.free <- o.whole
		o.whole = nil
	}
	out, ok := <-o.queue
	if !ok {
		o.err = io.EOF
		if o.left > 0 {
			o.err = fmt.Errorf("ending a download early: %w", o.cause())
		}
		return
	}
	got := <-out
	if got.err != nil {
		o.err = got.err
		return
	}
	o.left -= int64(len(got.data))
	o.whole, o.rest = got.data[:cap(got.data)], got.data
}

// Close ends the fetching and waits until it has ended.
func (o *ordered) Close() error {
	o.cancel()
	for range cap(o.free) { // wakes fetchers that wait for a buffer
		select {
		case o.free <- nil:
		default:
		}
	}
	if err := o.wait(); err != nil {
		return fmt.Errorf("ending a download: %w", err)
	}
	return nil
}
