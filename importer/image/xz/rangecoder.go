package xz

// Constants of the range coder: probabilities of 11 bits that adapt by a 32nd.
const (
	probBits  = 11
	probInit  = 1 << (probBits - 1)
	moveBits  = 5
	topValue  = 1 << 24
	initBytes = 5
)

// coder is a range decoder over one chunk, which is in memory as a whole. Reading past its
// end gives zeros and is noticed when the chunk is finished.
type coder struct {
	limit uint32 // the range
	code  uint32
	in    []byte
	pos   int
}

// start begins a chunk. It reports false when the chunk cannot be one.
func (c *coder) start(chunk []byte) bool {
	if len(chunk) < initBytes || chunk[0] != 0 {
		return false
	}
	c.limit = 1<<32 - 1
	c.code = uint32(chunk[1])<<24 | uint32(chunk[2])<<16 | uint32(chunk[3])<<8 | uint32(chunk[4])
	c.in, c.pos = chunk, initBytes
	return true
}

// finished reports whether the chunk was read to its end, and to no byte past it.
func (c *coder) finished() bool {
	if c.limit < topValue {
		c.limit <<= 8
		c.code = c.code<<8 | uint32(c.next())
	}
	return c.pos == len(c.in) && c.code == 0
}

func (c *coder) next() byte {
	p := c.pos
	c.pos++
	if p < len(c.in) {
		return c.in[p]
	}
	return 0
}

// bit decodes one bit with the probability at p.
func (c *coder) bit(p *uint16) uint32 {
	limit, code := c.limit, c.code
	if limit < topValue {
		limit <<= 8
		code = code<<8 | uint32(c.next())
	}
	prob := uint32(*p)
	bound := (limit >> probBits) * prob
	if code < bound {
		*p = uint16(prob + (1<<probBits-prob)>>moveBits)
		c.limit, c.code = bound, code
		return 0
	}
	*p = uint16(prob - prob>>moveBits)
	c.limit, c.code = limit-bound, code-bound
	return 1
}

// tree decodes a number of the given bits, the highest first. Probs has 1<<bits elements.
func (c *coder) tree(probs []uint16, bits int) uint32 {
	limit, code := c.limit, c.code
	symbol := uint32(1)
	for range bits {
		if limit < topValue {
			limit <<= 8
			code = code<<8 | uint32(c.next())
		}
		p := &probs[symbol]
		prob := uint32(*p)
		bound := (limit >> probBits) * prob
		if code < bound {
			*p = uint16(prob + (1<<probBits-prob)>>moveBits)
			limit = bound
			symbol <<= 1
		} else {
			*p = uint16(prob - prob>>moveBits)
			limit -= bound
			code -= bound
			symbol = symbol<<1 | 1
		}
	}
	c.limit, c.code = limit, code
	return symbol - 1<<bits
}

// reverseTree decodes a number of the given bits, the lowest first.
func (c *coder) reverseTree(probs []uint16, bits int) uint32 {
	symbol, result := uint32(1), uint32(0)
	for n := range bits {
		b := c.bit(&probs[symbol])
		symbol = symbol<<1 | b
		result |= b << n
	}
	return result
}

// direct decodes bits that have no probability.
func (c *coder) direct(bits int) uint32 {
	limit, code := c.limit, c.code
	result := uint32(0)
	for range bits {
		if limit < topValue {
			limit <<= 8
			code = code<<8 | uint32(c.next())
		}
		limit >>= 1
		code -= limit
		under := uint32(int32(code) >> 31) // all ones when the bit is 0
		code += limit & under
		result = result<<1 + under + 1
	}
	c.limit, c.code = limit, code
	return result
}

// literal decodes a byte after a literal.
func (c *coder) literal(probs *[0x300]uint16) byte {
	limit, code := c.limit, c.code
	symbol := uint32(1)
	for symbol < 0x100 {
		if limit < topValue {
			limit <<= 8
			code = code<<8 | uint32(c.next())
		}
		p := &probs[symbol]
		prob := uint32(*p)
		bound := (limit >> probBits) * prob
		if code < bound {
			*p = uint16(prob + (1<<probBits-prob)>>moveBits)
			limit = bound
			symbol <<= 1
		} else {
			*p = uint16(prob - prob>>moveBits)
			limit -= bound
			code -= bound
			symbol = symbol<<1 | 1
		}
	}
	c.limit, c.code = limit, code
	return byte(symbol)
}

// matched decodes a byte after a match; other is the byte that the match would have gone on with.
func (c *coder) matched(probs *[0x300]uint16, other byte) byte {
	limit, code := c.limit, c.code
	symbol, match, offset := uint32(1), uint32(other), uint32(0x100)
	for symbol < 0x100 {
		if limit < topValue {
			limit <<= 8
			code = code<<8 | uint32(c.next())
		}
		match <<= 1
		p := &probs[offset+(match&offset)+symbol]
		prob := uint32(*p)
		bound := (limit >> probBits) * prob
		if code < bound {
			*p = uint16(prob + (1<<probBits-prob)>>moveBits)
			limit = bound
			symbol <<= 1
			offset &^= match
		} else {
			*p = uint16(prob - prob>>moveBits)
			limit -= bound
			code -= bound
			symbol = symbol<<1 | 1
			offset &= match
		}
	}
	c.limit, c.code = limit, code
	return byte(symbol)
}
