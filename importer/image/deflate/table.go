package deflate

import "math/bits"

// Sizes of the code tables: a code that is longer than the bits of the first lookup goes on
// in a table of its own behind it. The sizes are the most that any valid set of codes needs.
const (
	maxBits      = 15
	maxSymbols   = 288
	literalBits  = 11
	literalSize  = 2342
	distanceBits = 8
	distanceSize = 402
	orderBits    = 7 // the code of code lengths is never longer
	orderSize    = 1 << orderBits
)

// An entry of a table says what a code stands for:
//
//	bits 0-7   bits to drop: of the code (in this lookup) and of its extra bits
//	bits 8-11  bits of the code alone; of a link, how many bits the next lookup takes
//	bit 13     the end of the block
//	bit 14     a link to a second table, which begins at the value
//	bit 15     not a plain length or distance: an end, a link, or no code at all
//	bits 16-30 the value: a byte, a base, an index
//	bit 31     a literal
const (
	entryEnd     = 1 << 13
	entryLink    = 1 << 14
	entrySpecial = 1 << 15
	entryLiteral = 1 << 31
)

// The first length or distance of each symbol, and how many extra bits follow its code.
var (
	lengthBase = [29]uint32{
		3, 4, 5, 6, 7, 8, 9, 10, 11, 13, 15, 17, 19, 23, 27, 31, 35, 43, 51, 59, 67, 83, 99, 115, 131, 163, 195, 227, 258,
	}
	lengthExtra  = [29]uint8{0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3, 4, 4, 4, 4, 5, 5, 5, 5, 0}
	distanceBase = [30]uint32{
		1, 2, 3, 4, 5, 7, 9, 13, 17, 25, 33, 49, 65, 97, 129, 193, 257, 385, 513, 769,
		1025, 1537, 2049, 3073, 4097, 6145, 8193, 12289, 16385, 24577,
	}
	distanceExtra = [30]uint8{0, 0, 0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6, 7, 7, 8, 8, 9, 9, 10, 10, 11, 11, 12, 12, 13, 13}
)

// literalEntry is the entry of a symbol of the literal and length alphabet, without its code's length.
func literalEntry(symbol int) (entry uint32, extra uint8) {
	switch {
	case symbol < 256:
		return entryLiteral | uint32(symbol)<<16, 0
	case symbol == 256:
		return entrySpecial | entryEnd, 0
	case symbol-257 < len(lengthBase):
		return lengthBase[symbol-257] << 16, lengthExtra[symbol-257]
	}
	return entrySpecial, 0
}

func distanceEntry(symbol int) (entry uint32, extra uint8) {
	if symbol < len(distanceBase) {
		return distanceBase[symbol] << 16, distanceExtra[symbol]
	}
	return entrySpecial, 0
}

func orderEntry(symbol int) (entry uint32, extra uint8) { return uint32(symbol) << 16, 0 }

// build fills a table for codes of the given lengths, of which the first lookup takes root
// bits. It reports whether the lengths make a set of codes: one that is complete, has a
// single code of one bit, or is empty. A place that no code reaches has an entry for that.
func build(table []uint32, lengths []uint8, root int, entryOf func(int) (uint32, uint8)) bool {
	var count, first [maxBits + 2]int
	for _, length := range lengths {
		count[length]++
	}
	count[0] = 0
	longest, left := 0, 1
	for length := 1; length <= maxBits; length++ {
		left = left<<1 - count[length]
		if left < 0 {
			return false
		}
		first[length+1] = first[length] + count[length]
		if count[length] > 0 {
			longest = length
		}
	}
	if left > 0 && longest > 1 {
		return false
	}
	var sorted [maxSymbols]uint16 // the symbols by the lengths of their codes
	for symbol, length := range lengths {
		if length > 0 {
			sorted[first[length]] = uint16(symbol)
			first[length]++
		}
	}
	for n := range table[:1<<root] {
		table[n] = entrySpecial
	}
	b := builder{table: table, count: &count, root: root, free: 1 << root}
	code, next := uint32(0), sorted[:]
	for length := 1; length <= longest; length++ {
		for code <<= 1; count[length] > 0; count[length]-- {
			entry, extra := entryOf(int(next[0]))
			if !b.put(code, length, entry, uint32(extra)) {
				return false
			}
			next = next[1:]
			code++
		}
	}
	return true
}

// builder puts codes into a table, from the shortest to the longest, in order.
type builder struct {
	table []uint32
	count *[maxBits + 2]int // codes of each length that are still to come
	root  int
	free  int // where the next second table begins
}

// put enters a code at every place of which it is the beginning.
func (b *builder) put(code uint32, length int, entry, extra uint32) bool {
	reversed := int(bits.Reverse32(code) >> (32 - length))
	if length <= b.root {
		entry |= uint32(length)<<8 | uint32(length) + extra
		for at := reversed; at < 1<<b.root; at += 1 << length {
			b.table[at] = entry
		}
		return true
	}
	prefix := reversed & (1<<b.root - 1)
	if b.table[prefix]&entryLink == 0 && !b.link(prefix, length) {
		return false
	}
	begin, width := int(b.table[prefix]>>16), int(b.table[prefix]>>8&15)
	rest := length - b.root
	entry |= uint32(rest)<<8 | uint32(rest) + extra
	for at := reversed >> b.root; at < 1<<width; at += 1 << rest {
		b.table[begin+at] = entry
	}
	return true
}

// link makes the second table of the codes that begin with prefix, the next of which has length bits.
func (b *builder) link(prefix, length int) bool {
	width := length - b.root
	for left := 1<<width - b.count[length]; left > 0 && b.root+width < maxBits; {
		width++
		left = left<<1 - b.count[b.root+width]
	}
	if b.free+1<<width > len(b.table) {
		return false
	}
	for n := b.free; n < b.free+1<<width; n++ {
		b.table[n] = entrySpecial
	}
	b.table[prefix] = entrySpecial | entryLink | uint32(b.free)<<16 | uint32(width)<<8 | uint32(b.root)
	b.free += 1 << width
	return true
}
