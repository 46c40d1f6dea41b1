package deflate

import (
	"io"
)

// Sizes of a stream's buffers, in bytes.
const (
	inputSize  = 128 << 10
	outputSize = 512 << 10
	// window is how far back a match may reach.
	window = 32 << 10
	// headerSize is more than the header of a block takes, its codes included.
	headerSize = 1 << 10
	// readAhead is more than the bytes that a decoder has in its bits.
	readAhead = 8
)

// state says what of its data a stream decodes next.
type state int

const (
	betweenBlocks state = iota
	inPacked
	inStored
	behindLast
)

// stream decodes deflate data that comes in order, whatever its size.
type stream struct {
	Decoder
	from   io.Reader
	buffer []byte // what was read; the decoder's in is the filled part of it
	ended  bool   // from has no more
	state  state
	final  bool // the block is the last
	rest   int  // bytes of a stored block that are still to come
	given  int  // decoded bytes before this one were given out
	err    error
}

func newStream(from io.Reader) *stream {
	s := &stream{from: from, buffer: make([]byte, inputSize)}
	s.in, s.out = s.buffer[:0], make([]byte, outputSize)
	return s
}

// begin prepares for the next deflate data in the input.
func (s *stream) begin() {
	s.at, s.given = 0, 0
	s.state, s.final, s.err = betweenBlocks, false, nil
}

// Read returns decoded bytes, io.EOF behind the last block.
func (s *stream) Read(p []byte) (int, error) {
	for s.given == s.at {
		if s.state == behindLast {
			return 0, io.EOF
		}
		if s.err != nil {
			return 0, s.err
		}
		s.err = s.advance()
	}
	n := copy(p, s.out[s.given:s.at])
	s.given += n
	return n, nil
}

// advance decodes until the output is full or the data ends.
func (s *stream) advance() error {
	if s.at > window { // all of it was given out
		copy(s.out, s.out[s.at-window:s.at])
		s.at, s.given = window, window
	}
	for s.state != behindLast && len(s.out)-s.at >= fastOutput {
		err := s.step()
		if s.over*8 > s.have { // zeros behind the input's end were decoded
			return ErrShort
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (s *stream) step() error {
	switch s.state {
	case inPacked:
		return s.packed()
	case inStored:
		return s.copyStored()
	}
	if s.final {
		s.state = behindLast
		s.take(s.have & 7)
		return s.giveBack()
	}
	return s.header()
}

// header reads what a block begins with.
func (s *stream) header() error {
	if err := s.need(headerSize); err != nil {
		return err
	}
	s.fill()
	s.final = s.take(1) == 1
	var err error
	switch s.take(2) {
	case blockStored:
		s.state = inStored
		s.rest, err = s.storedLength()
	case blockFixed:
		s.state = inPacked
		s.fixed()
	case blockDynamic:
		s.state = inPacked
		err = s.dynamic()
	default:
		err = ErrFormat
	}
	return err
}

// packed decodes what there is input and room for, and at least a symbol.
func (s *stream) packed() error {
	if err := s.need(fastInput); err != nil {
		return err
	}
	decode := s.symbol
	if s.roomy() {
		decode = s.fast
	}
	ended, err := decode()
	if ended {
		s.state = betweenBlocks
	}
	return err
}

func (s *stream) copyStored() error {
	if s.rest == 0 {
		s.state = betweenBlocks
		return nil
	}
	if err := s.need(1); err != nil {
		return err
	}
	if s.pos == len(s.in) {
		return ErrShort
	}
	n := copy(s.out[s.at:], s.in[s.pos:min(s.pos+s.rest, len(s.in))])
	s.at, s.pos, s.rest = s.at+n, s.pos+n, s.rest-n
	return nil
}

// need reads until n bytes of input are there, or all that are left.
func (s *stream) need(n int) error {
	if len(s.in)-s.pos >= n || s.ended {
		return nil
	}
	keep := min(s.pos, readAhead)
	filled := copy(s.buffer, s.in[s.pos-keep:])
	s.pos = keep
	for attempts := 0; filled-s.pos < n && !s.ended; attempts++ {
		got, err := s.from.Read(s.buffer[filled:])
		filled += got
		switch {
		case err == io.EOF: //nolint:errorlint // an error that has it in its chain is the source's
			s.ended = true
		case err != nil:
			return err //nolint:wrapcheck // the caller says what it was reading
		case got > 0:
			attempts = 0
		case attempts == 100:
			return io.ErrNoProgress
		}
	}
	s.in = s.buffer[:filled]
	return nil
}

// next reads the n bytes of input behind the deflate data, at most headerSize. They are valid until the next call.
func (s *stream) next(n int) ([]byte, error) {
	if err := s.need(n); err != nil {
		return nil, err
	}
	if len(s.in)-s.pos < n {
		return nil, ErrShort
	}
	s.pos += n
	return s.in[s.pos-n : s.pos], nil
}
