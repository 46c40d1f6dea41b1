package source

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/slipway-vm/slipway/internal/transfer"
)

// Sizes of a cursor's requests: small after a jump, larger while the reading goes on
// where it stopped.
const (
	minWindow = 1 << 20
	maxWindow = 32 << 20
	skipLimit = 256 << 10 // a gap that is read and dropped rather than asked for anew
	tailSize  = 4 << 10   // what is kept of the last bytes: compressed clusters overlap by up to a sector
)

// Cursor reads a ranged source at any offset, best in ascending order. It keeps one request
// open. It belongs to one goroutine.
type Cursor struct {
	source *HTTP
	open   func(off, length int64) (body io.ReadCloser, end int64, err error)
	retry  func(since time.Time, attempt func() error) error
	body   io.ReadCloser
	pos    int64 // offset of the body's next byte
	end    int64 // where what is wanted of the body ends
	window int64
	// expected is how many bytes are still read in a row at the most; 0 when nobody has said so, or was wrong.
	expected int64
	tail     []byte // the bytes before pos
}

// Cursor returns a new reader of a ranged source; ctx ends its requests.
func (h *HTTP) Cursor(ctx context.Context) *Cursor {
	return &Cursor{
		source: h,
		open:   func(off, length int64) (io.ReadCloser, int64, error) { return h.body(ctx, off, length) },
		retry: func(since time.Time, attempt func() error) error {
			return h.retry(ctx, since, attempt)
		},
	}
}

// Expect says that no more than so many bytes are read until it is called again, so that no more is asked
// for: a request that is not read to its end costs its connection.
func (c *Cursor) Expect(bytes int64) { c.expected = bytes }

// ReadAt reads len(p) bytes at off, over broken connections. It returns io.EOF at the file's end.
func (c *Cursor) ReadAt(p []byte, off int64) (int, error) {
	if off >= c.source.size {
		return 0, io.EOF
	}
	var short error
	if rest := c.source.size - off; int64(len(p)) > rest {
		p, short = p[:rest], io.EOF
	}
	done, since := c.again(p, off), time.Now()
	for done < len(p) {
		err := c.retry(since, func() error {
			n, err := c.read(p[done:], off+int64(done))
			if n > 0 {
				done, since = done+n, time.Now()
			}
			return err
		})
		if err != nil {
			return done, err
		}
	}
	return len(p), short
}

// again copies what the tail still has of the bytes at off, and returns how many those are.
func (c *Cursor) again(p []byte, off int64) int {
	back := c.pos - off
	if back <= 0 || back > int64(len(c.tail)) {
		return 0
	}
	return copy(p, c.tail[int64(len(c.tail))-back:])
}

// keep notes p, which was read last, as the bytes before pos.
func (c *Cursor) keep(p []byte) {
	if len(p) >= tailSize {
		c.tail = append(c.tail[:0], p[len(p)-tailSize:]...)
		return
	}
	if over := len(c.tail) + len(p) - tailSize; over > 0 {
		c.tail = c.tail[:copy(c.tail, c.tail[over:])]
	}
	c.tail = append(c.tail, p...)
}

// Close ends the open request.
func (c *Cursor) Close() error {
	if c.body == nil {
		return nil
	}
	err := c.body.Close()
	c.body = nil
	if err != nil {
		return fmt.Errorf("closing a request to %s: %w", c.source.Name(), err)
	}
	return nil
}

// read reads what one open request gives, at most len(p) bytes.
func (c *Cursor) read(p []byte, off int64) (int, error) {
	if err := c.seek(off, int64(len(p))); err != nil {
		return 0, err
	}
	want := min(int64(len(p)), c.end-c.pos)
	n, err := io.ReadFull(c.body, p[:want])
	c.pos += int64(n)
	c.expected = max(0, c.expected-int64(n))
	c.keep(p[:n])
	c.source.counter.Add(int64(n))
	if err != nil {
		c.drop()
		return n, c.source.broken(err, off+int64(n))
	}
	if c.pos == c.end {
		c.source.leave(c.body, 0)
		c.body = nil
	}
	return n, nil
}

// seek makes the open body stand at off: it goes on, skips a small gap, or asks anew.
func (c *Cursor) seek(off, need int64) error {
	if c.body != nil && off == c.pos {
		return nil
	}
	defer func(tail []byte) { c.tail = tail[:0] }(c.tail) // it is of another place
	if c.body != nil && off > c.pos && off < c.end && off-c.pos <= skipLimit {
		n, err := io.CopyN(io.Discard, c.body, off-c.pos)
		c.pos += n
		c.source.counter.Add(n)
		if err == nil {
			return nil
		}
	}
	sequential := off == c.end
	c.drop()
	if sequential {
		c.window = min(max(2*c.window, minWindow), maxWindow)
	} else {
		c.window = minWindow
	}
	length := c.window
	if c.expected > 0 {
		length = min(length, c.expected)
	}
	length = min(max(length, need), c.source.size-off)
	body, end, err := c.open(off, length)
	if err != nil {
		return err
	}
	c.body, c.pos, c.end = body, off, min(off+length, end) // a server may send less than was asked for, or more
	return nil
}

func (c *Cursor) drop() {
	if c.body != nil {
		_ = c.body.Close() // what was read is read; a new request follows
		c.body = nil
	}
}

// body requests length bytes at off of the very file that Open saw, and watches that bytes come. They end at end, as
// the server says.
func (h *HTTP) body(ctx context.Context, off, length int64) (body io.ReadCloser, end int64, err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	response, err := h.get(ctx, off, length)
	if err != nil {
		cancel(nil)
		return nil, 0, err
	}
	if end, err = h.same(response, off); err != nil {
		cancel(nil)
		response.Body.Close()
		return nil, 0, err
	}
	return watch(ctx, response.Body, cancel, h.options.IdleTimeout, h.limit), end, nil
}

// broken is the error of a body that ended before its time at off.
func (h *HTTP) broken(err error, off int64) error {
	if _, ok := errors.AsType[*transfer.Error](err); ok {
		return err
	}
	return &temporary{transfer.Errorf(transfer.ConnectionLost, "the connection to %s broke at byte %d of %d: %w", h.Name(), off, h.size, err)}
}

// errIdle is the cause of a body that was cut because nothing came.
var errIdle = errors.New("the server sent nothing for too long")

// watched is a body whose request ends when no byte comes within the idle time, and that comes no
// faster than its source's limit.
type watched struct {
	io.ReadCloser
	ctx    context.Context //nolint:containedctx // the request's, which Read ends with
	limit  *limit
	cancel context.CancelCauseFunc
	timer  *time.Timer
	idle   time.Duration
}

func watch(ctx context.Context, body io.ReadCloser, cancel context.CancelCauseFunc, idle time.Duration, limit *limit) *watched {
	return &watched{ReadCloser: body, ctx: ctx, limit: limit, cancel: cancel, idle: idle, timer: time.AfterFunc(idle, func() { cancel(errIdle) })}
}

func (w *watched) Read(p []byte) (int, error) {
	w.timer.Reset(w.idle)
	n, err := w.ReadCloser.Read(w.limit.cut(p))
	w.timer.Stop()
	w.limit.wait(w.ctx, n)
	return n, err //nolint:wrapcheck // io.Reader's contract: io.EOF as it is
}

func (w *watched) Close() error {
	w.timer.Stop()
	defer w.cancel(nil)
	return w.ReadCloser.Close() //nolint:wrapcheck // the caller says what it was closing
}
