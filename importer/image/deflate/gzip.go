package deflate

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
)

// ErrChecksum says that what was decoded is not what was packed.
var ErrChecksum = errors.New("a checksum of the gzip file is wrong")

// Flags of a member's header (RFC 1952, section 2.3.1).
const (
	flagHeaderSum = 1 << 1
	flagExtra     = 1 << 2
	flagName      = 1 << 3
	flagComment   = 1 << 4
	flagsReserved = 0xe0
)

// Gzip decodes a gzip file of one or more members, which zeros may follow.
type Gzip struct {
	stream *stream
	inside bool // a member's header was read
	begun  bool // and it was not the file's first
	sum    uint32
	size   uint32
	err    error
}

// NewGzip returns a reader of the gzip file that r reads. It reads r to its end.
func NewGzip(r io.Reader) *Gzip { return &Gzip{stream: newStream(r)} }

// Read returns decoded bytes. Those of a member are returned before its checksum was seen;
// only io.EOF says that all of them were right. A file that ends too early gives io.ErrUnexpectedEOF.
func (g *Gzip) Read(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	for g.err == nil {
		if !g.inside {
			g.err = g.begin()
			continue
		}
		n, err := g.stream.Read(p)
		if n > 0 {
			g.sum = crc32.Update(g.sum, crc32.IEEETable, p[:n])
			g.size += uint32(n) //nolint:gosec // the size is told modulo 2^32
			return n, nil
		}
		if err == io.EOF { //nolint:errorlint // an error that has it in its chain is the source's
			err = g.end()
		}
		g.err = err
	}
	if errors.Is(g.err, ErrShort) {
		return 0, io.ErrUnexpectedEOF
	}
	return 0, g.err
}

// begin reads a member's header, or finds the file's end.
func (g *Gzip) begin() error {
	if g.begun {
		if err := g.skipZeros(); err != nil {
			return err
		}
	}
	head, err := g.stream.next(10)
	if err != nil {
		return err
	}
	if head[0] != 0x1f || head[1] != 0x8b || head[2] != 8 || head[3]&flagsReserved != 0 {
		return fmt.Errorf("%w: the header of a gzip file", ErrFormat)
	}
	if err := g.skipFields(head[3], crc32.ChecksumIEEE(head)); err != nil {
		return err
	}
	g.stream.begin()
	g.inside, g.begun, g.sum, g.size = true, true, 0, 0
	return nil
}

// skipZeros reads the zeros behind a member. It returns io.EOF when nothing else follows.
func (g *Gzip) skipZeros() error {
	for s := g.stream; ; s.pos++ {
		if err := s.need(1); err != nil {
			return err
		}
		if s.pos == len(s.in) {
			return io.EOF
		}
		if s.in[s.pos] != 0 {
			return nil
		}
	}
}

// skipFields reads the fields that a header may have beyond its ten bytes, of which sum is the checksum so far.
func (g *Gzip) skipFields(flags byte, sum uint32) error {
	if flags&flagExtra != 0 {
		length, err := g.stream.next(2)
		if err != nil {
			return err
		}
		sum = crc32.Update(sum, crc32.IEEETable, length)
		if sum, err = g.skip(int(binary.LittleEndian.Uint16(length)), sum); err != nil {
			return err
		}
	}
	for _, flag := range []byte{flagName, flagComment} {
		for last := byte(1); flags&flag != 0 && last != 0; {
			b, err := g.stream.next(1)
			if err != nil {
				return err
			}
			sum, last = crc32.Update(sum, crc32.IEEETable, b), b[0]
		}
	}
	if flags&flagHeaderSum == 0 {
		return nil
	}
	want, err := g.stream.next(2)
	if err != nil {
		return err
	}
	if uint32(binary.LittleEndian.Uint16(want)) != sum&0xffff {
		return fmt.Errorf("%w: of its header", ErrChecksum)
	}
	return nil
}

func (g *Gzip) skip(n int, sum uint32) (uint32, error) {
	for n > 0 {
		part, err := g.stream.next(min(n, headerSize))
		if err != nil {
			return 0, err
		}
		sum = crc32.Update(sum, crc32.IEEETable, part)
		n -= len(part)
	}
	return sum, nil
}

// end compares a member with what is told of it behind its data.
func (g *Gzip) end() error {
	tail, err := g.stream.next(8)
	if err != nil {
		return err
	}
	if binary.LittleEndian.Uint32(tail) != g.sum || binary.LittleEndian.Uint32(tail[4:]) != g.size {
		return ErrChecksum
	}
	g.inside = false
	return nil
}
