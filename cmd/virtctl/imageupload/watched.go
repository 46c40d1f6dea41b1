package imageupload

import (
	"errors"
	"io"
	"sync"
	"time"
)

// stalledAfter is for how long nothing may be taken of the file before its connection counts as broken: an upload server
// that was not told of its end keeps what has come for longer.
const stalledAfter = time.Minute

var (
	// errStalled ends a request of which nothing is taken.
	errStalled = errors.New("nothing more of it is taken")
	// errFilled ends a request whose answer was lost.
	errFilled = errors.New("the disk is there")
)

// watched is the body of a request that is given up when nothing of it is taken for a while. Once all of it is taken it
// is written, which may last.
type watched struct {
	from     io.Reader
	left     int64 // bytes
	patience time.Duration
	late     *time.Timer
	taken    chan struct{} // closed when all of it is
	ended    sync.Once
}

// newWatched watches from, of size bytes, once it is read. It calls giveUp at most once.
func newWatched(from io.Reader, size int64, patience time.Duration, giveUp func()) *watched {
	w := &watched{from: from, left: size, patience: patience, late: time.AfterFunc(patience, giveUp), taken: make(chan struct{})}
	w.late.Stop()
	w.note()
	return w
}

func (w *watched) Read(p []byte) (int, error) {
	w.late.Reset(w.patience)
	n, err := w.from.Read(p)
	w.left -= int64(n)
	if w.left <= 0 || err != nil {
		w.late.Stop()
	}
	w.note()
	return n, err //nolint:wrapcheck // io.Reader's contract
}

// note says when all is taken.
func (w *watched) note() {
	if w.left <= 0 {
		w.ended.Do(func() { close(w.taken) })
	}
}
