package target

import (
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// flushEvery is after how many bytes what was written is made safe, while more is written.
const flushEvery = 64 << 20

// flusher makes a disk's bytes safe as they come: below O_DIRECT there may be a cache yet, of a loop device, a virtual
// disk or a server, and all of it at the end would be a long wait in which nothing else happens.
type flusher struct {
	flushed atomic.Int64 // how much had been written when the last flush began
	busy    atomic.Bool
	flushes sync.WaitGroup
	failed  atomic.Pointer[error] // the kernel tells of a failure once
}

// wrote flushes the file fd, of which so many bytes were written, beside what follows, when it is time for that. It
// returns why an earlier flush failed.
func (f *flusher) wrote(fd int, written int64) error {
	if written-f.flushed.Load() >= flushEvery && f.busy.CompareAndSwap(false, true) {
		f.flushed.Store(written)
		f.flushes.Go(func() {
			if err := unix.Fdatasync(fd); err != nil {
				f.failed.CompareAndSwap(nil, &err)
			}
			f.busy.Store(false)
		})
	}
	return f.failure()
}

// wait waits for the flush that is under way, and returns why one failed.
func (f *flusher) wait() error {
	f.flushes.Wait()
	return f.failure()
}

func (f *flusher) failure() error {
	if err := f.failed.Load(); err != nil {
		return *err
	}
	return nil
}
