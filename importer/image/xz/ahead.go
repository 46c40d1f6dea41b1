package xz

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"runtime"
	"runtime/debug"
)

// readAhead reads the headers of the blocks that come next, and begins to decode those for
// which there are a processor and memory.
func (r *Reader) readAhead() error {
	for r.inStream {
		if r.next == nil {
			first, err := r.in.Peek(1)
			if err != nil {
				return cut(err)
			}
			if first[0] == 0 { // the index
				return nil
			}
			if r.next, err = r.readBlock(); err != nil {
				return err
			}
		}
		if !r.fits(r.next) {
			return nil
		}
		if err := r.decodeAhead(r.next); err != nil {
			return err
		}
		r.ahead, r.next = append(r.ahead, r.next), nil
	}
	return nil
}

// fits says whether a block can be decoded beside those that are: one of which that cannot be
// said, or of which two are too many, is decoded as it is read.
func (r *Reader) fits(b *block) bool {
	if b.wantPacked == unknown || b.wantSize == unknown || b.memory() > r.limit*5/8 || len(r.ahead) == runtime.GOMAXPROCS(0) {
		return false
	}
	sum := b.memory()
	for _, other := range r.ahead {
		sum += other.memory()
	}
	return sum <= r.limit*5/4
}

// memory is what a block takes that is decoded ahead: it is there whole, packed and not.
func (b *block) memory() int64 {
	if b.wantPacked > 1<<40 || b.wantSize > 1<<40 {
		return 1 << 41
	}
	return b.wantPacked + b.wantSize + chunkMax
}

// decodeAhead reads a block's data and begins to decode it.
func (r *Reader) decodeAhead(b *block) error {
	data := make([]byte, b.wantPacked+(-b.wantPacked&3)+int64(checkSize(b.kind)))
	if _, err := io.ReadFull(&r.in, data); err != nil {
		return cut(err)
	}
	b.in, b.begun = &counted{Reader: bufio.NewReaderSize(bytes.NewReader(data), packedMax)}, 0
	b.lzma2, b.decoded = r.decoder(), make(chan struct{})
	go func() {
		defer close(b.decoded)
		b.err = b.decodeAll()
	}()
	return nil
}

// decodeAll decodes a block into its window, which has room for all of it. It returns io.EOF when it came to its end.
func (b *block) decodeAll() error {
	b.begin(max(b.wantSize, b.dictionary))
	for {
		if err := b.chunk(b.in); errors.Is(err, io.ErrUnexpectedEOF) {
			return errSizes
		} else if err != nil {
			return err
		}
		if int64(b.count) > b.wantSize {
			return errSizes
		}
	}
}

// decoder returns one that has no block. The memory of the others is given back before a block
// is decoded as it is read, which may have a large dictionary.
func (r *Reader) decoder() *lzma2 {
	if len(r.idle) == 0 {
		return &lzma2{}
	}
	d := r.idle[len(r.idle)-1]
	r.idle = r.idle[:len(r.idle)-1]
	if r.current != nil && r.current.decoded == nil && len(r.idle) > 0 {
		r.idle = nil
		debug.FreeOSMemory()
	}
	return d
}
