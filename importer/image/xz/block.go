package xz

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"hash"
	"hash/crc32"
	"hash/crc64"
	"io"
)

const (
	filterLZMA2    = 0x21
	flagPacked     = 0x40
	flagSize       = 0x80
	flagsReserved  = 0x3c
	maxDictionary  = 40
	unknown        = -1
	maxVarintBytes = 9
)

// block is a part of a stream that is decoded by itself.
type block struct {
	*lzma2
	in         *counted
	kind       byte          // of its check
	check      hash.Hash     // nil for none
	header     int64         // bytes of its header
	begun      int64         // where in the input its data begins
	packed     int64         // bytes of its data, once it is decoded
	wantPacked int64         // the same by its header, or unknown
	wantSize   int64         // decoded bytes by the header, or unknown
	size       int64         // bytes given out so far
	dictionary int64         // bytes of its dictionary
	decoded    chan struct{} // closed once all is decoded; nil for a block that is decoded as it is given out
	err        error         // of decoding, once that ended
}

// record is a block as the index lists it.
type record struct{ unpadded, size int64 }

// list is records in their order. It keeps a digest of them, for a stream may have any number.
type list struct {
	count int64
	sum   hash.Hash
}

func (l *list) add(one record) {
	if l.sum == nil {
		l.sum = sha256.New()
	}
	var sizes [16]byte
	binary.LittleEndian.PutUint64(sizes[:8], uint64(one.unpadded)) //nolint:gosec // a size
	binary.LittleEndian.PutUint64(sizes[8:], uint64(one.size))     //nolint:gosec // likewise
	l.sum.Write(sizes[:])
	l.count++
}

func (l *list) digest() string {
	if l.sum == nil {
		return ""
	}
	return string(l.sum.Sum(nil))
}

func (b *block) record() record {
	return record{b.header + b.packed + int64(checkSize(b.kind)), b.size}
}

// readBlock reads a block's header.
func (r *Reader) readBlock() (*block, error) {
	begin := r.in.n
	size, err := r.in.ReadByte()
	if err != nil {
		return nil, cut(err)
	}
	head := make([]byte, (int(size)+1)*4)
	head[0] = size
	if _, err := io.ReadFull(&r.in, head[1:]); err != nil {
		return nil, cut(err)
	}
	body := head[:len(head)-4]
	if crc32.ChecksumIEEE(body) != binary.LittleEndian.Uint32(head[len(body):]) {
		return nil, fmt.Errorf("%w: a block's header", ErrChecksum)
	}
	b := &block{in: &r.in, kind: r.kind, header: r.in.n - begin, begun: r.in.n, wantPacked: unknown, wantSize: unknown}
	if err := b.parse(body); err != nil {
		return nil, err
	}
	if b.dictionary > r.limit {
		return nil, fmt.Errorf("%w: it needs a dictionary of %d MiB, at most %d MiB are given; pack it with a lower preset", ErrUnsupported, b.dictionary>>20, r.limit>>20)
	}
	b.check, err = newCheck(b.kind)
	return b, err
}

// parse reads what a header says: sizes, where it tells them, and the filter.
func (b *block) parse(head []byte) (err error) {
	rest, flags := bytes.NewReader(head[2:]), head[1]
	if flags&flagsReserved != 0 || flags&3 != 0 {
		return fmt.Errorf("%w: a block has filters beside LZMA2; pack it without --x86, --delta and the like", ErrUnsupported)
	}
	if flags&flagPacked != 0 {
		if b.wantPacked, err = varint(rest); err != nil {
			return err
		}
	}
	if flags&flagSize != 0 {
		if b.wantSize, err = varint(rest); err != nil {
			return err
		}
	}
	if b.dictionary, err = filter(rest); err != nil {
		return err
	}
	if b.wantSize != unknown { // a small block needs no more than itself
		b.dictionary = min(b.dictionary, max(b.wantSize, 4096))
	}
	return nil
}

// filter reads the one filter of a block and returns the size of its dictionary.
func filter(r *bytes.Reader) (int64, error) {
	id, err := varint(r)
	if err != nil {
		return 0, err
	}
	if id != filterLZMA2 {
		return 0, fmt.Errorf("%w: a block has the filter %#x alone", ErrUnsupported, id)
	}
	if n, err := varint(r); err != nil || n != 1 {
		return 0, fmt.Errorf("%w: a block's filter", ErrFormat)
	}
	bits, err := r.ReadByte()
	if err != nil || bits > maxDictionary {
		return 0, fmt.Errorf("%w: a dictionary's size", ErrFormat)
	}
	if bits == maxDictionary {
		return 1<<32 - 1, nil
	}
	return int64(2|bits&1) << (bits/2 + 11), nil
}

// Read returns decoded bytes, and io.EOF once the block was found to be right.
func (b *block) Read(p []byte) (int, error) {
	for {
		if n := b.take(p); n > 0 {
			if b.check != nil {
				b.check.Write(p[:n])
			}
			b.size += int64(n)
			return n, nil
		}
		err := b.err
		if b.decoded == nil {
			err = b.chunk(b.in)
		}
		if err == io.EOF { //nolint:errorlint // an error that has it in its chain is the source's
			return 0, b.end()
		}
		if err != nil {
			return 0, err
		}
	}
}

// end reads a block's padding and its check, and compares. It returns io.EOF when all is right.
func (b *block) end() error {
	b.packed = b.in.n - b.begun
	if b.wantPacked != unknown && b.wantPacked != b.packed || b.wantSize != unknown && b.wantSize != b.size {
		return errSizes
	}
	var padding [3]byte
	if _, err := io.ReadFull(b.in, padding[:-b.packed&3]); err != nil {
		return cut(err)
	}
	if padding != [3]byte{} {
		return fmt.Errorf("%w: a block's padding", ErrFormat)
	}
	want := make([]byte, checkSize(b.kind))
	if _, err := io.ReadFull(b.in, want); err != nil {
		return cut(err)
	}
	if b.check != nil && !bytes.Equal(b.sum(), want) {
		return ErrChecksum
	}
	return io.EOF
}

var errSizes = fmt.Errorf("%w: a block has another size than its header says", ErrFormat)

// sum is the check of the block as it stands in the file.
func (b *block) sum() []byte {
	switch b.kind {
	case 1:
		return binary.LittleEndian.AppendUint32(nil, binary.BigEndian.Uint32(b.check.Sum(nil)[:crc32.Size]))
	case 4:
		return binary.LittleEndian.AppendUint64(nil, binary.BigEndian.Uint64(b.check.Sum(nil)[:crc64.Size]))
	}
	return b.check.Sum(nil)
}

// checkSize is the length of a check of a kind.
func checkSize(kind byte) int {
	if kind == 0 {
		return 0
	}
	return 4 << ((kind - 1) / 3)
}

// readIndex reads the index, compares it with the blocks and returns its size.
func (r *Reader) readIndex() (int64, error) {
	begin := r.in.n
	sum := crc32.NewIEEE()
	tee := &teeByte{&r.in, sum}
	if _, err := tee.ReadByte(); err != nil { // the zero that tells it from a block
		return 0, cut(err)
	}
	count, err := varint(tee)
	if err != nil {
		return 0, err
	}
	if count != r.listed.count {
		return 0, fmt.Errorf("%w: its index lists %d blocks, it has %d", ErrFormat, count, r.listed.count)
	}
	var listed list
	for range count {
		unpadded, err := varint(tee)
		if err != nil {
			return 0, err
		}
		size, err := varint(tee)
		if err != nil {
			return 0, err
		}
		listed.add(record{unpadded, size})
	}
	if listed.digest() != r.listed.digest() {
		return 0, fmt.Errorf("%w: its index does not fit its blocks", ErrFormat)
	}
	for (r.in.n-begin)%4 != 0 {
		if b, err := tee.ReadByte(); err != nil {
			return 0, cut(err)
		} else if b != 0 {
			return 0, fmt.Errorf("%w: its index's padding", ErrFormat)
		}
	}
	var stored [4]byte
	if _, err := io.ReadFull(&r.in, stored[:]); err != nil {
		return 0, cut(err)
	}
	if binary.LittleEndian.Uint32(stored[:]) != sum.Sum32() {
		return 0, fmt.Errorf("%w: its index", ErrChecksum)
	}
	return r.in.n - begin, nil
}

// teeByte adds the bytes that are read to a sum.
type teeByte struct {
	from io.ByteReader
	sum  io.Writer
}

func (t *teeByte) ReadByte() (byte, error) {
	b, err := t.from.ReadByte()
	if err == nil {
		_, err = t.sum.Write([]byte{b})
	}
	return b, err //nolint:wrapcheck // io.ByteReader's contract
}

// varint reads a number of xz: seven bits a byte, the lowest first.
func varint(r io.ByteReader) (int64, error) {
	var n int64
	for i := range maxVarintBytes {
		b, err := r.ReadByte()
		if err != nil {
			return 0, cut(err)
		}
		n |= int64(b&0x7f) << (7 * i)
		if b < 0x80 {
			if b == 0 && i > 0 {
				break
			}
			return n, nil
		}
	}
	return 0, fmt.Errorf("%w: a number in it", ErrFormat)
}
