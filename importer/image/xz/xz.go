// Package xz decodes xz streams (LZMA2 without further filters) several times faster than
// the other decoders in Go, in memory that is bounded by the stream's dictionary. It checks
// what the stream has to check: CRC-32, CRC-64 or SHA-256 of each block, and the index.
package xz

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"hash"
	"hash/crc32"
	"hash/crc64"
	"io"
)

// Errors of broken streams. They are wrapped; what follows them says more.
var (
	// ErrFormat says that the stream is not as xz streams are.
	ErrFormat = errors.New("not a valid xz stream")
	// ErrChecksum says that a block is not what was packed.
	ErrChecksum = errors.New("a checksum of the xz stream is wrong")
	// ErrUnsupported says that the stream needs what this package has not.
	ErrUnsupported = errors.New("the xz stream is not supported")
)

const (
	headerMagic = "\xfd7zXZ\x00"
	footerMagic = "YZ"
	headerSize  = 12
	footerSize  = 12
)

// counted counts the bytes that were read.
type counted struct {
	*bufio.Reader
	n int64
}

func (c *counted) Read(p []byte) (int, error) {
	n, err := c.Reader.Read(p)
	c.n += int64(n)
	return n, err //nolint:wrapcheck // io.Reader's contract
}

func (c *counted) ReadByte() (byte, error) {
	b, err := c.Reader.ReadByte()
	if err == nil {
		c.n++
	}
	return b, err //nolint:wrapcheck // io.ByteReader's contract
}

// Reader decodes a file of one or more xz streams.
type Reader struct {
	in       counted
	limit    int64 // of the dictionary
	kind     byte  // of the stream's checks
	inStream bool
	current  *block   // the one that is given out, nil between blocks
	next     *block   // the one whose header was read
	ahead    []*block // those before next that are decoded side by side
	idle     []*lzma2 // decoders that have no block
	listed   list     // the stream's blocks so far
	err      error
}

// NewReader returns a reader of r that refuses dictionaries of more than limit bytes. Blocks
// whose headers tell their sizes are decoded side by side, in no more memory than that.
func NewReader(r io.Reader, limit int64) *Reader {
	in, ok := r.(*bufio.Reader)
	if !ok {
		in = bufio.NewReader(r)
	}
	return &Reader{in: counted{Reader: in}, limit: limit}
}

// Read returns decoded bytes. Those of a block are returned before its checksum was seen;
// only io.EOF says that all of them were right.
func (r *Reader) Read(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	for r.err == nil {
		if r.current == nil {
			r.err = r.advance()
			continue
		}
		n, err := r.current.Read(p)
		if n > 0 {
			return n, nil
		}
		if err == io.EOF { //nolint:errorlint // an error that has it in its chain is the source's
			r.listed.add(r.current.record())
			r.idle = append(r.idle, r.current.lzma2)
			r.current, err = nil, nil
		}
		r.err = err
	}
	return 0, r.err
}

// Close waits for the blocks that are being decoded.
func (r *Reader) Close() {
	for _, b := range r.ahead {
		<-b.decoded
	}
}

// advance passes from one part of the file to the next.
func (r *Reader) advance() error {
	if err := r.readAhead(); err != nil {
		return err
	}
	switch {
	case len(r.ahead) > 0:
		r.current, r.ahead = r.ahead[0], r.ahead[1:]
		<-r.current.decoded
		return nil
	case r.next != nil:
		r.current, r.next = r.next, nil
		r.current.lzma2 = r.decoder()
		r.current.begin(r.current.dictionary)
		return nil
	case r.inStream:
		return r.endStream()
	}
	return r.beginStream()
}

// beginStream reads a stream's header, or finds the file's end.
func (r *Reader) beginStream() error {
	var head [headerSize]byte
	if err := r.skipPadding(head[:4]); err != nil {
		return err
	}
	if _, err := io.ReadFull(&r.in, head[4:]); err != nil {
		return cut(err)
	}
	if string(head[:6]) != headerMagic || crc32.ChecksumIEEE(head[6:8]) != binary.LittleEndian.Uint32(head[8:]) {
		return fmt.Errorf("%w: its header", ErrFormat)
	}
	if head[6] != 0 || head[7] > 15 {
		return fmt.Errorf("%w: its flags %x", ErrUnsupported, head[6:8])
	}
	r.kind, r.inStream, r.listed = head[7], true, list{}
	_, err := newCheck(r.kind)
	return err
}

// skipPadding reads the first four bytes of the next stream, over the zeros between
// streams. It returns io.EOF when no stream follows the last.
func (r *Reader) skipPadding(head []byte) error {
	for first := r.in.n == 0; ; {
		n, err := io.ReadFull(&r.in, head)
		if n == 0 && err == io.EOF && !first { //nolint:errorlint // an error that has it in its chain is the source's
			return io.EOF
		}
		if err != nil {
			return cut(err)
		}
		if first || !bytes.Equal(head, make([]byte, len(head))) {
			return nil
		}
	}
}

// newCheck returns what computes checks of a kind, nil for none.
func newCheck(kind byte) (hash.Hash, error) {
	switch kind {
	case 0:
		return nil, nil //nolint:nilnil // a stream need not have checks
	case 1:
		return crc32.NewIEEE(), nil
	case 4:
		return crc64.New(ecma), nil
	case 10:
		return sha256.New(), nil
	}
	return nil, fmt.Errorf("%w: it has a check of the unknown kind %d", ErrUnsupported, kind)
}

var ecma = crc64.MakeTable(crc64.ECMA)

// endStream reads the index and the footer, and compares them with what was decoded.
func (r *Reader) endStream() error {
	size, err := r.readIndex()
	if err != nil {
		return err
	}
	var foot [footerSize]byte
	if _, err := io.ReadFull(&r.in, foot[:]); err != nil {
		return cut(err)
	}
	backward := (int64(binary.LittleEndian.Uint32(foot[4:])) + 1) * 4
	if crc32.ChecksumIEEE(foot[4:10]) != binary.LittleEndian.Uint32(foot[:]) || !bytes.Equal(foot[8:10], []byte{0, r.kind}) ||
		string(foot[10:]) != footerMagic || backward != size {
		return fmt.Errorf("%w: its footer", ErrFormat)
	}
	r.inStream = false
	return nil
}

// cut is the error of a file that ends where it must not, or of its reader.
func cut(err error) error {
	if err == io.EOF || err == io.ErrUnexpectedEOF { //nolint:errorlint // an error that has it in its chain is the source's
		return io.ErrUnexpectedEOF
	}
	return fmt.Errorf("reading an xz stream: %w", err)
}
