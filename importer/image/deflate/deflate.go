// Package deflate unpacks raw deflate data (RFC 1951) that is in memory as a whole, packed
// and unpacked, as the clusters of a qcow2 image are, and gzip files (RFC 1952) that come in
// order, several times as fast as the decoders of streams that there are in Go. Nothing in
// the data is trusted.
package deflate

import (
	"encoding/binary"
	"errors"
)

// Errors of broken data.
var (
	// ErrFormat says that the data is not as deflate data is.
	ErrFormat = errors.New("not valid deflate data")
	// ErrShort says that the data ends, or has its end mark, before the output is full.
	ErrShort = errors.New("the deflate data ends too early")
)

// Bounds of the fast loop: what one round of it reads and writes at the most.
const (
	fastInput  = 16
	fastOutput = 3 + 258 + 8
)

// Kinds of blocks.
const (
	blockStored = iota
	blockFixed
	blockDynamic
)

// Decoder holds the tables of the block that it decodes, for reuse. The zero Decoder is
// ready; one goroutine uses it at a time.
type Decoder struct {
	literal  [literalSize]uint32
	distance [distanceSize]uint32
	order    [orderSize]uint32
	lengths  [maxSymbols + 32]uint8

	in   []byte
	pos  int    // the next byte of in
	buf  uint64 // bits that were read, the next one lowest
	have uint   // how many those are
	over uint   // zero bytes that were added behind the end of in

	out []byte
	at  int // the next byte of out
}

// Decode fills dst from src. Whatever src holds beyond that is not looked at.
func (d *Decoder) Decode(dst, src []byte) error {
	d.in, d.pos, d.buf, d.have, d.over = src, 0, 0, 0, 0
	d.out, d.at = dst, 0
	defer func() { d.in, d.out = nil, nil }()
	for d.at < len(d.out) {
		d.fill()
		final, kind := d.take(1) == 1, d.take(2)
		if err := d.block(kind); err != nil {
			return err
		}
		if d.over*8 > d.have || final && d.at < len(d.out) {
			return ErrShort
		}
	}
	return nil
}

func (d *Decoder) block(kind uint64) error {
	switch kind {
	case blockStored:
		return d.stored()
	case blockFixed:
		d.fixed()
	case blockDynamic:
		if err := d.dynamic(); err != nil {
			return err
		}
	default:
		return ErrFormat
	}
	for {
		ended, err := d.fast()
		if err != nil || ended {
			return err
		}
		ended, err = d.slow()
		if err != nil || ended || d.at == len(d.out) {
			return err
		}
	}
}

// fill makes at least 56 bits ready, zeros behind the data's end.
func (d *Decoder) fill() {
	for d.have <= 56 {
		if d.pos < len(d.in) {
			d.buf |= uint64(d.in[d.pos]) << d.have
			d.pos++
		} else {
			d.over++
		}
		d.have += 8
	}
}

// take returns the next n bits, which fill made ready.
func (d *Decoder) take(n uint) uint64 {
	value := d.buf & (1<<n - 1)
	d.buf >>= n
	d.have -= n
	return value
}

// stored copies a block that is not packed.
func (d *Decoder) stored() error {
	length, err := d.storedLength()
	if err != nil {
		return err
	}
	n := min(length, len(d.out)-d.at)
	if n > len(d.in)-d.pos {
		return ErrShort
	}
	copy(d.out[d.at:], d.in[d.pos:d.pos+n])
	d.at, d.pos = d.at+n, d.pos+n
	return nil
}

// storedLength reads how many bytes a block that is not packed has, which come next in the input.
func (d *Decoder) storedLength() (int, error) {
	d.take(d.have & 7)
	d.fill()
	length, complement := d.take(16), d.take(16)
	if length != ^complement&0xffff {
		return 0, ErrFormat
	}
	return int(length), d.giveBack()
}

// giveBack puts what was read ahead back to the input, from the next whole byte on.
func (d *Decoder) giveBack() error {
	if d.over*8 > d.have {
		return ErrShort
	}
	d.pos -= int(d.have/8 - d.over)
	d.buf, d.have, d.over = 0, 0, 0
	return nil
}

// fixed makes the tables of a block with the codes that every decoder knows.
func (d *Decoder) fixed() {
	for n := range maxSymbols {
		switch {
		case n < 144:
			d.lengths[n] = 8
		case n < 256:
			d.lengths[n] = 9
		case n < 280:
			d.lengths[n] = 7
		default:
			d.lengths[n] = 8
		}
	}
	build(d.literal[:], d.lengths[:maxSymbols], literalBits, literalEntry)
	for n := range 32 {
		d.lengths[n] = 5
	}
	build(d.distance[:], d.lengths[:32], distanceBits, distanceEntry)
}

// orderOf is the order in which a block lists the lengths of the code of code lengths.
var orderOf = [19]uint8{16, 17, 18, 0, 8, 7, 9, 6, 10, 5, 11, 4, 12, 3, 13, 2, 14, 1, 15}

// dynamic reads the codes of a block and makes its tables.
func (d *Decoder) dynamic() error {
	literals, distances, orders := int(d.take(5))+257, int(d.take(5))+1, int(d.take(4))+4
	if literals > 286 || distances > 30 {
		return ErrFormat
	}
	var order [19]uint8
	for n := range orders {
		d.fill()
		order[orderOf[n]] = uint8(d.take(3))
	}
	if !build(d.order[:], order[:], orderBits, orderEntry) {
		return ErrFormat
	}
	if err := d.readLengths(literals + distances); err != nil {
		return err
	}
	if !build(d.literal[:], d.lengths[:literals], literalBits, literalEntry) ||
		!build(d.distance[:], d.lengths[literals:literals+distances], distanceBits, distanceEntry) {
		return ErrFormat
	}
	return nil
}

// readLengths reads total lengths of codes, which are packed themselves.
func (d *Decoder) readLengths(total int) error {
	for n := 0; n < total; {
		d.fill()
		entry := d.order[d.buf&(orderSize-1)]
		if entry&entrySpecial != 0 {
			return ErrFormat
		}
		d.take(uint(entry & 0xff))
		symbol := uint8(entry >> 16)
		if symbol < 16 {
			d.lengths[n] = symbol
			n++
			continue
		}
		value, times := uint8(0), 0
		switch symbol {
		case 16:
			if n == 0 {
				return ErrFormat
			}
			value, times = d.lengths[n-1], 3+int(d.take(2))
		case 17:
			times = 3 + int(d.take(3))
		default:
			times = 11 + int(d.take(7))
		}
		if n+times > total {
			return ErrFormat
		}
		for range times {
			d.lengths[n] = value
			n++
		}
	}
	return nil
}

// lookup returns the entry of the next code, whose bits of the first lookup it drops when a second is needed.
func (d *Decoder) lookup(table []uint32, root uint) uint32 {
	entry := table[d.buf&(1<<root-1)]
	if entry&entryLink == 0 {
		return entry
	}
	d.take(root)
	return table[uint64(entry>>16)+d.buf&(1<<(entry>>8&15)-1)]
}

// value drops the bits of a code and returns what it stands for.
func (d *Decoder) value(entry uint32) int {
	code := uint(entry >> 8 & 15)
	return int(entry>>16) + int(d.take(uint(entry&0xff))>>code)
}

// slow decodes up to the end of the block or of the output, or until there is room for fast.
// It reports whether the block ended.
func (d *Decoder) slow() (ended bool, err error) {
	for d.at < len(d.out) {
		ended, err := d.symbol()
		if err != nil || ended {
			return ended, err
		}
		if d.roomy() {
			return false, nil
		}
	}
	return false, nil
}

// roomy says whether fast can do a round.
func (d *Decoder) roomy() bool {
	return len(d.in)-d.pos >= fastInput && len(d.out)-d.at >= fastOutput
}

// symbol decodes one literal or match, or finds the end of the block. It reads at most fastInput bytes.
func (d *Decoder) symbol() (ended bool, err error) {
	d.fill()
	entry := d.lookup(d.literal[:], literalBits)
	switch {
	case entry&entryLiteral != 0:
		d.take(uint(entry & 0xff))
		d.out[d.at] = byte(entry >> 16)
		d.at++
	case entry&entryEnd != 0:
		d.take(uint(entry & 0xff))
		ended = true
	case entry&entrySpecial != 0:
		return false, ErrFormat
	default:
		if err := d.match(d.value(entry)); err != nil {
			return false, err
		}
	}
	if !ended && d.over*8 > d.have {
		return false, ErrShort
	}
	return ended, nil
}

// match reads a distance and repeats length bytes from there, as far as there is room.
func (d *Decoder) match(length int) error {
	d.fill()
	entry := d.lookup(d.distance[:], distanceBits)
	if entry&entrySpecial != 0 {
		return ErrFormat
	}
	distance := d.value(entry)
	if distance > d.at {
		return ErrFormat
	}
	for range min(length, len(d.out)-d.at) {
		d.out[d.at] = d.out[d.at-distance]
		d.at++
	}
	return nil
}

// fast decodes while a whole round fits into what is left of input and output. It reports
// whether the block ended. It is slow with its state in registers and fewer checks of bounds.
func (d *Decoder) fast() (ended bool, err error) {
	in, out := d.in, d.out
	pos, at, buf, have := d.pos, d.at, d.buf, d.have
	literal, distance := &d.literal, &d.distance
	if d.over > 0 {
		return false, nil
	}
	for len(in)-pos >= fastInput && len(out)-at >= fastOutput {
		buf |= binary.LittleEndian.Uint64(in[pos:]) << (have & 63)
		pos += int((63 - have) >> 3)
		have |= 56
		entry := literal[buf&(1<<literalBits-1)]
		if entry&entryLiteral != 0 { // up to three literals on one filling
			buf, have = buf>>(entry&63), have-uint(entry&63)
			out[at] = byte(entry >> 16)
			at++
			entry = literal[buf&(1<<literalBits-1)]
			if entry&entryLiteral != 0 {
				buf, have = buf>>(entry&63), have-uint(entry&63)
				out[at] = byte(entry >> 16)
				at++
				entry = literal[buf&(1<<literalBits-1)]
				if entry&entryLiteral != 0 {
					buf, have = buf>>(entry&63), have-uint(entry&63)
					out[at] = byte(entry >> 16)
					at++
					continue
				}
			}
		}
		if entry&entryLink != 0 {
			buf, have = buf>>literalBits, have-literalBits
			entry = literal[uint64(entry>>16)+buf&(1<<(entry>>8&15)-1)]
			if entry&entryLiteral != 0 {
				buf, have = buf>>(entry&63), have-uint(entry&63)
				out[at] = byte(entry >> 16)
				at++
				continue
			}
		}
		if entry&entrySpecial != 0 {
			if entry&entryEnd == 0 {
				return false, ErrFormat
			}
			buf, have = buf>>(entry&63), have-uint(entry&63)
			d.pos, d.at, d.buf, d.have = pos, at, buf&(1<<have-1), have
			return true, nil
		}
		length := int(entry>>16) + int(buf&(1<<(entry&63)-1)>>(entry>>8&15))
		buf, have = buf>>(entry&63), have-uint(entry&63)

		buf |= binary.LittleEndian.Uint64(in[pos:]) << (have & 63)
		pos += int((63 - have) >> 3)
		have |= 56
		entry = distance[buf&(1<<distanceBits-1)]
		if entry&entryLink != 0 {
			buf, have = buf>>distanceBits, have-distanceBits
			entry = distance[uint64(entry>>16)+buf&(1<<(entry>>8&15)-1)]
		}
		if entry&entrySpecial != 0 {
			return false, ErrFormat
		}
		back := int(entry>>16) + int(buf&(1<<(entry&63)-1)>>(entry>>8&15))
		buf, have = buf>>(entry&63), have-uint(entry&63)
		if back > at {
			return false, ErrFormat
		}
		repeat(out[at-back:at+length+8], back, length)
		at += length
	}
	d.pos, d.at, d.buf, d.have = pos, at, buf&(1<<have-1), have // bits beyond have were not counted
	return false, nil
}

// repeat copies p[:length] to p[back:] as if byte by byte; up to 8 bytes behind may change, too.
func repeat(p []byte, back, length int) {
	if back >= 8 {
		for from, to := p, p[back:]; length > 0; length -= 8 {
			binary.LittleEndian.PutUint64(to, binary.LittleEndian.Uint64(from))
			if length > 8 {
				from, to = from[8:], to[8:]
			}
		}
		return
	}
	if back == 1 {
		word := uint64(p[0]) * 0x0101010101010101
		for to := p[1:]; length > 0; length -= 8 {
			binary.LittleEndian.PutUint64(to, word)
			if length > 8 {
				to = to[8:]
			}
		}
		return
	}
	for n := range length {
		p[back+n] = p[n]
	}
}
