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
	decoder  lzma2
	limit    int64 // of the dictionary
	kind     byte  // of the check
	check    hash.Hash
	block    *block // nil between blocks
	records  []record
	inStream bool
	err      error
}

// NewReader returns a reader of r that refuses dictionaries of more than limit bytes.
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
	for r.err == nil {
		if n := r.decoder.take(p); n > 0 {
			if r.check != nil {
				r.check.Write(p[:n])
			}
			r.block.size += int64(n)
			return n, nil
		}
		r.err = r.advance()
	}
	return 0, r.err
}

// advance decodes the next chunk, or passes from one part of the file to the next.
func (r *Reader) advance() error {
	if r.block != nil {
		err := r.decoder.chunk(&r.in)
		if errors.Is(err, io.EOF) {
			return r.endBlock()
		}
		return err
	}
	if !r.inStream {
		return r.beginStream()
	}
	size, err := r.in.ReadByte()
	if err != nil {
		return cut(err)
	}
	if size != 0 {
		return r.beginBlock(size)
	}
	return r.endStream()
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
	r.kind, r.inStream, r.records = head[7], true, nil
	return r.chooseCheck()
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

// chooseCheck prepares for the kind of check that the stream's blocks have.
func (r *Reader) chooseCheck() error {
	switch r.kind {
	case 0:
		r.check = nil
	case 1:
		r.check = crc32.NewIEEE()
	case 4:
		r.check = crc64.New(crc64.MakeTable(crc64.ECMA))
	case 10:
		r.check = sha256.New()
	default:
		return fmt.Errorf("%w: it has a check of the unknown kind %d", ErrUnsupported, r.kind)
	}
	return nil
}

// endStream reads the index, whose first byte was read, and the footer, and compares them with what was decoded.
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
