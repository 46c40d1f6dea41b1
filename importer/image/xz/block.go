package xz

import (
	"bytes"
	"encoding/binary"
	"fmt"
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
	header     int64 // bytes of its header
	begin      int64 // where its data begins
	wantPacked int64 // bytes of its data by the header, or unknown
	wantSize   int64 // decoded bytes by the header, or unknown
	size       int64 // bytes decoded so far
}

// record is a block as the index lists it.
type record struct{ unpadded, size int64 }

// beginBlock reads a block's header, of which size is the first byte.
func (r *Reader) beginBlock(size byte) error {
	begin := r.in.n - 1
	head := make([]byte, (int(size)+1)*4)
	head[0] = size
	if _, err := io.ReadFull(&r.in, head[1:]); err != nil {
		return cut(err)
	}
	body := head[:len(head)-4]
	if crc32.ChecksumIEEE(body) != binary.LittleEndian.Uint32(head[len(body):]) {
		return fmt.Errorf("%w: a block's header", ErrChecksum)
	}
	b := &block{header: r.in.n - begin, begin: r.in.n, wantPacked: unknown, wantSize: unknown}
	rest := bytes.NewReader(body[2:])
	flags := body[1]
	if flags&flagsReserved != 0 || flags&3 != 0 {
		return fmt.Errorf("%w: a block has filters beside LZMA2; pack it without --x86, --delta and the like", ErrUnsupported)
	}
	var err error
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
	dictionary, err := filter(rest)
	if err != nil {
		return err
	}
	if b.wantSize != unknown { // a small block needs no more than itself
		dictionary = min(dictionary, max(b.wantSize, 4096))
	}
	if dictionary > r.limit {
		return fmt.Errorf("%w: it needs a dictionary of %d MiB, at most %d MiB are given; pack it with a lower preset", ErrUnsupported, dictionary>>20, r.limit>>20)
	}
	r.decoder.begin(dictionary)
	if r.check != nil {
		r.check.Reset()
	}
	r.block = b
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

// endBlock reads a block's padding and its check, and compares.
func (r *Reader) endBlock() error {
	b := r.block
	packed := r.in.n - b.begin
	if b.wantPacked != unknown && b.wantPacked != packed || b.wantSize != unknown && b.wantSize != b.size {
		return fmt.Errorf("%w: a block has another size than its header says", ErrFormat)
	}
	var padding [3]byte
	if _, err := io.ReadFull(&r.in, padding[:-packed&3]); err != nil {
		return cut(err)
	}
	if padding != [3]byte{} {
		return fmt.Errorf("%w: a block's padding", ErrFormat)
	}
	length := checkSize(r.kind)
	want := make([]byte, length)
	if _, err := io.ReadFull(&r.in, want); err != nil {
		return cut(err)
	}
	if r.check != nil && !bytes.Equal(r.sum(), want) {
		return ErrChecksum
	}
	r.records = append(r.records, record{b.header + packed + int64(length), b.size})
	r.block = nil
	return nil
}

// sum is the check of the block as it stands in the file.
func (r *Reader) sum() []byte {
	switch r.kind {
	case 1:
		return binary.LittleEndian.AppendUint32(nil, binary.BigEndian.Uint32(r.check.Sum(nil)[:crc32.Size]))
	case 4:
		return binary.LittleEndian.AppendUint64(nil, binary.BigEndian.Uint64(r.check.Sum(nil)[:crc64.Size]))
	}
	return r.check.Sum(nil)
}

// checkSize is the length of a check of a kind.
func checkSize(kind byte) int {
	if kind == 0 {
		return 0
	}
	return 4 << ((kind - 1) / 3)
}

// readIndex reads the index, whose first byte was read, compares it with the blocks and returns its size.
func (r *Reader) readIndex() (int64, error) {
	begin := r.in.n - 1
	sum := crc32.NewIEEE()
	sum.Write([]byte{0})
	tee := &teeByte{&r.in, sum}
	count, err := varint(tee)
	if err != nil {
		return 0, err
	}
	if count != int64(len(r.records)) {
		return 0, fmt.Errorf("%w: its index lists %d blocks, it has %d", ErrFormat, count, len(r.records))
	}
	for _, want := range r.records {
		unpadded, err := varint(tee)
		if err != nil {
			return 0, err
		}
		size, err := varint(tee)
		if err != nil {
			return 0, err
		}
		if (record{unpadded, size}) != want {
			return 0, fmt.Errorf("%w: its index does not fit its blocks", ErrFormat)
		}
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
