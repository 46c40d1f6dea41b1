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
	next       []byte // what is not handed over yet
	done       chan struct{}
}

// NewBeside begins to compute the hash of what is written from now on.
func NewBeside(to hash.Hash) *Beside {
	b := &Beside{work: make(chan []byte, besideBuffers), free: make(chan []byte, besideBuffers), done: make(chan struct{})}
	for range besideBuffers {
		b.free <- make([]byte, 0, besideBuffer)
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

// Write takes a copy of p, which is handed over when a buffer is full; once closed, nothing.
func (b *Beside) Write(p []byte) {
	for len(p) > 0 && b.work != nil {
		if b.next == nil {
			b.next = <-b.free
		}
		n := min(len(p), besideBuffer-len(b.next))
		b.next, p = append(b.next, p[:n]...), p[n:]
		if len(b.next) == besideBuffer {
			b.handOver()
		}
	}
}

func (b *Beside) handOver() {
	b.work <- b.next
	b.next = nil
}

// Close waits until everything is hashed, and ends the goroutine; a second time it does nothing.
func (b *Beside) Close() {
	if b.work != nil {
		if b.next != nil {
			b.handOver()
		}
		close(b.work)
		<-b.done
		b.work = nil
	}
}
