package uploadserver

import (
	"context"
	"errors"
	"io"
	"sync"
	"time"
)

// keepFor is for how long an upload is kept whose sender went away.
const keepFor = 2 * time.Minute

var (
	// errNobody ends an upload whose sender did not come again.
	errNobody = errors.New("nobody came again in time")
	// errAnew ends an upload whose sender wants to begin anew.
	errAnew = errors.New("another attempt begins anew")
	// errLeaving ends an upload whose server goes.
	errLeaving = errors.New("the upload server goes")
)

// kept is an upload that outlives its connections: what one of them did not bring, the next one does. It is
// the stream of one import.
type kept struct {
	id   string
	size int64         // of the whole file in bytes
	wait time.Duration // for how long it waits for a sender

	mu      sync.Mutex
	changed chan struct{} // closed, and made anew, whenever something below has changed
	from    *sender       // who sends; nil while nobody does
	gone    chan struct{} // closed when from has no part in it any more
	reading bool          // a read of a sender is under way
	came    int64         // bytes
	ended   error         // why nothing more is read

	done chan struct{} // closed when the import has ended, how is err
	err  error
}

func newKept(id string, size int64, wait time.Duration) *kept {
	return &kept{id: id, size: size, wait: wait, changed: make(chan struct{}), done: make(chan struct{})}
}

// Read reads from whoever sends. When that one goes away, it waits for the next one.
func (k *kept) Read(p []byte) (int, error) {
	for {
		from, err := k.next()
		if err != nil {
			return 0, err
		}
		n, err := from.Read(p)
		switch whole := k.took(from, n, err); {
		case whole:
			return n, io.EOF
		case n > 0:
			return n, nil
		}
	}
}

// next returns who sends, once somebody does, as one who is being read.
func (k *kept) next() (*sender, error) {
	late := time.NewTimer(k.wait)
	defer late.Stop()
	for {
		k.mu.Lock()
		from, ended, changed := k.from, k.ended, k.changed
		k.reading = ended == nil && from != nil
		k.mu.Unlock()
		switch {
		case ended != nil:
			return nil, ended
		case from != nil:
			return from, nil
		}
		select {
		case <-changed:
		case <-late.C:
			return nil, errNobody
		}
	}
}

// took notes what a read of from has brought, and says whether that was the last of the file. Otherwise one of whom no
// more comes has no part in it any more.
func (k *kept) took(from *sender, n int, err error) (whole bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.reading = false
	k.came += int64(n)
	whole = err != nil && k.came == k.size
	if err != nil && !whole && k.from == from {
		close(k.gone)
		k.from = nil
	}
	k.notify()
	return whole
}

// notify wakes who waits for a change. The caller holds mu.
func (k *kept) notify() {
	close(k.changed)
	k.changed = make(chan struct{})
}

// pause takes the place from whoever sends, and returns how many bytes have come: none comes from him any more. One who has
// brought the last of them keeps it, and so does, until his read is over, one who is still being read when ctx ends.
func (k *kept) pause(ctx context.Context) (came int64, err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	from, gone := k.from, k.gone
	if from != nil && k.came < k.size {
		k.from = nil
		from.cut()
	}
	for k.reading && err == nil {
		changed := k.changed
		k.mu.Unlock()
		select {
		case <-changed:
		case <-ctx.Done():
			err = ctx.Err()
		}
		k.mu.Lock()
	}
	switch {
	case from == nil, k.from == from:
	case k.from == nil && (k.reading || k.came == k.size): // his read is not over, or the last of it came by him meanwhile
		k.from = from
		k.notify()
	default:
		close(gone)
	}
	return k.came, err //nolint:wrapcheck // the request is over
}

// attach lets from go on after offset bytes, when so many have come and nobody else sends; gone is closed when he has no
// part in it any more. When all has come, there is nothing to send.
func (k *kept) attach(from *sender, offset int64) (gone <-chan struct{}, came int64, ok bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	switch {
	case k.came != offset, k.ended != nil:
		return nil, k.came, false
	case k.came == k.size && k.size > 0:
		return nil, k.came, true
	case k.from != nil:
		return nil, k.came, false
	}
	k.from, k.gone = from, make(chan struct{})
	k.notify()
	return k.gone, k.came, true
}

// dismiss ends the upload for the sake of another, unless somebody sends who is not silent, and says whether it has.
func (k *kept) dismiss() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.came == k.size || k.from != nil && !k.from.dismiss() {
		return false
	}
	k.endBy(errDismissed)
	return true
}

// cut ends the upload at once, unless all of it has come.
func (k *kept) cut() {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.came == k.size {
		return
	}
	if k.from != nil {
		k.from.cut()
	}
	k.endBy(errLeaving)
}

// end ends the upload, because of cause.
func (k *kept) end(cause error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.endBy(cause)
}

func (k *kept) endBy(cause error) {
	if k.ended == nil {
		k.ended = cause
	}
	k.notify()
}

// finish says how the import has ended.
func (k *kept) finish(err error) {
	k.err = err
	close(k.done)
}
