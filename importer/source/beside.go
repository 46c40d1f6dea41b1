package source

import "hash"

// Buffers of a Beside.
const (
	besideBuffers = 4
	besideBuffer  = 256 << 10
)

// Beside computes a hash in a goroutine of its own, so that its time is not added to that of the reading. It
// belongs to one goroutine, which closes it.
type Beside struct {
	work, free chan []byte
	done       chan struct{}
}

// NewBeside begins to compute the hash of what is written from now on.
func NewBeside(to hash.Hash) *Beside {
	b := &Beside{work: make(chan []byte, besideBuffers), free: make(chan []byte, besideBuffers), done: make(chan struct{})}
	for range besideBuffers {
		b.free <- nil
	}
	go func() {
		defer close(b.done)
		for p := range b.work {
			_, _ = to.Write(p) // a hash takes all
			b.free <- p[:0]
		}
	}()
	return b
}

// Write hands a copy of p over; once closed, nothing.
func (b *Beside) Write(p []byte) {
	for len(p) > 0 && b.work != nil {
		n := min(len(p), besideBuffer)
		b.work <- append(<-b.free, p[:n]...)
		p = p[n:]
	}
}

// Close waits until everything is hashed, and ends the goroutine; a second time it does nothing.
func (b *Beside) Close() {
	if b.work != nil {
		close(b.work)
		<-b.done
		b.work = nil
	}
}
