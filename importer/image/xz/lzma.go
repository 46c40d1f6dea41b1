package xz

// Sizes of LZMA's models.
const (
	states        = 12
	maxPosStates  = 16
	literalStates = 7 // states below it follow a literal
	lengthMin     = 2
	endPosModel   = 14 // slots from here on have direct bits
	startPosModel = 4
	alignBits     = 4
	maxLiterals   = 1 << 4 // contexts of literals: lc + lp is at most 4 in LZMA2
)

// lengths is the model of a match's length.
type lengths struct {
	choice, choice2 uint16
	low, mid        [maxPosStates][8]uint16
	high            [256]uint16
}

func (l *lengths) decode(c *coder, posState uint32) int {
	if c.bit(&l.choice) == 0 {
		return lengthMin + int(c.tree(l.low[posState&15][:], 3))
	}
	if c.bit(&l.choice2) == 0 {
		return lengthMin + 8 + int(c.tree(l.mid[posState&15][:], 3))
	}
	return lengthMin + 16 + int(c.tree(l.high[:], 8))
}

// models are all probabilities of an LZMA stream.
type models struct {
	isMatch, isRep0Long              [states][maxPosStates]uint16
	isRep, isRepG0, isRepG1, isRepG2 [states]uint16
	slots                            [4][64]uint16
	special                          [128]uint16
	align                            [1 << alignBits]uint16
	matchLength, repLength           lengths
	literals                         [maxLiterals][0x300]uint16
}

// lzma is the state of an LZMA stream over the chunks of a block.
type lzma struct {
	coder
	models
	state                  uint32
	rep0, rep1, rep2, rep3 uint32
	literalBits            uint32 // lc
	literalMask, posMask   uint32 // of lp, pb
}

// properties sets lc, lp and pb from their byte. It reports whether LZMA2 allows them.
func (l *lzma) properties(b byte) bool {
	if b > (4*5+4)*9+8 {
		return false
	}
	lc, lp, pb := uint32(b%9), uint32(b/9%5), uint32(b/9/5)
	if lc+lp > 4 {
		return false
	}
	l.literalBits, l.literalMask, l.posMask = lc, 1<<lp-1, 1<<pb-1
	return true
}

// reset forgets everything but the properties.
func (l *lzma) reset() {
	l.state, l.rep0, l.rep1, l.rep2, l.rep3 = 0, 0, 0, 0, 0
	m := &l.models
	for s := range states {
		fill(m.isMatch[s][:])
		fill(m.isRep0Long[s][:])
	}
	for _, probs := range [][]uint16{m.isRep[:], m.isRepG0[:], m.isRepG1[:], m.isRepG2[:], m.special[:], m.align[:]} {
		fill(probs)
	}
	for n := range m.slots {
		fill(m.slots[n][:])
	}
	for n := range m.literals {
		fill(m.literals[n][:])
	}
	for _, length := range []*lengths{&m.matchLength, &m.repLength} {
		length.choice, length.choice2 = probInit, probInit
		for n := range maxPosStates {
			fill(length.low[n][:])
			fill(length.mid[n][:])
		}
		fill(length.high[:])
	}
}

func fill(probs []uint16) {
	for n := range probs {
		probs[n] = probInit
	}
}

// decode appends exactly size bytes to w. It reports false when the data is broken.
func (l *lzma) decode(w *window, size int) bool {
	for end := w.total + int64(size); w.total < end; {
		posState := uint32(w.total) & l.posMask
		state := l.state
		if l.bit(&l.isMatch[state][posState]) == 0 {
			l.decodeLiteral(w)
			continue
		}
		var length int
		if l.bit(&l.isRep[state]) == 0 {
			length = l.decodeMatch(posState)
		} else {
			length = l.decodeRep(posState)
		}
		if int64(l.rep0) >= w.reach() || int64(length) > end-w.total {
			return false
		}
		w.match(int(l.rep0)+1, length)
	}
	return true
}

func (l *lzma) decodeLiteral(w *window) {
	context := (uint32(w.total)&l.literalMask)<<l.literalBits + uint32(w.last())>>(8-l.literalBits)
	probs := &l.literals[context&(maxLiterals-1)]
	var b byte
	if l.state < literalStates {
		b = l.literal(probs)
	} else {
		b = l.matched(probs, w.back(int(l.rep0)+1))
	}
	w.put(b)
	switch {
	case l.state < 4:
		l.state = 0
	case l.state < 10:
		l.state -= 3
	default:
		l.state -= 6
	}
}

// decodeMatch decodes a match at a new distance.
func (l *lzma) decodeMatch(posState uint32) int {
	l.rep3, l.rep2, l.rep1 = l.rep2, l.rep1, l.rep0
	length := l.matchLength.decode(&l.coder, posState)
	l.state = after(l.state, 7)
	slot := l.tree(l.slots[min(length-lengthMin, 3)][:], 6)
	if slot < startPosModel {
		l.rep0 = slot
		return length
	}
	bits := int(slot>>1) - 1
	distance := (2 | slot&1) << bits
	if slot < endPosModel {
		l.rep0 = distance + l.reverseTree(l.special[distance-slot:], bits)
	} else {
		l.rep0 = distance + l.direct(bits-alignBits)<<alignBits + l.reverseTree(l.align[:], alignBits)
	}
	return length
}

// decodeRep decodes a match at one of the last four distances.
func (l *lzma) decodeRep(posState uint32) int {
	state := l.state
	switch {
	case l.bit(&l.isRepG0[state]) == 0:
		if l.bit(&l.isRep0Long[state][posState]) == 0 {
			l.state = after(state, 9)
			return 1
		}
	case l.bit(&l.isRepG1[state]) == 0:
		l.rep0, l.rep1 = l.rep1, l.rep0
	case l.bit(&l.isRepG2[state]) == 0:
		l.rep0, l.rep1, l.rep2 = l.rep2, l.rep0, l.rep1
	default:
		l.rep0, l.rep1, l.rep2, l.rep3 = l.rep3, l.rep0, l.rep1, l.rep2
	}
	l.state = after(state, 8)
	return l.repLength.decode(&l.coder, posState)
}

// after is the state that follows one of the kinds of match.
func after(state, kind uint32) uint32 {
	if state < literalStates {
		return kind
	}
	if kind == 7 {
		return 10
	}
	return 11
}
