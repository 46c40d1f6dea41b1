package xz

import "runtime/debug"

// window is the ring of the bytes that were decoded last: the dictionary of a block, and in
// it what nobody has taken yet.
type window struct {
	ring  []byte
	pos   int   // where the next byte goes
	total int64 // bytes since the dictionary was reset
	taken int   // where the next byte to take is
	count int   // bytes to take
}

// chunkMax is the most that one chunk decodes to, and so the room that the ring has beside the dictionary.
const chunkMax = 2 << 20

// prepare makes the ring large enough for a dictionary.
func (w *window) prepare(dictionary int64) {
	size := int(dictionary) + chunkMax
	if cap(w.ring) < size {
		if w.ring != nil { // never two of them at a time
			w.ring = nil
			debug.FreeOSMemory()
		}
		w.ring = make([]byte, size)
	}
	w.ring = w.ring[:size]
	w.forget()
	w.pos, w.taken, w.count = 0, 0, 0
}

// forget begins a new dictionary.
func (w *window) forget() { w.total = 0 }

// reach is how far back a match may go.
func (w *window) reach() int64 { return min(w.total, int64(len(w.ring)-chunkMax)) }

// last is the byte before the next, zero at the beginning.
func (w *window) last() byte {
	if w.total == 0 {
		return 0
	}
	return w.back(1)
}

// back is the byte at distance.
func (w *window) back(distance int) byte {
	at := w.pos - distance
	if at < 0 {
		at += len(w.ring)
	}
	if uint(at) >= uint(len(w.ring)) {
		return 0 // the stream is broken; decode notices
	}
	return w.ring[at]
}

func (w *window) put(b byte) {
	w.ring[w.pos] = b
	w.advance(1)
}

func (w *window) advance(n int) {
	w.pos += n
	if w.pos == len(w.ring) {
		w.pos = 0
	}
	w.total += int64(n)
	w.count += n
}

// match repeats length bytes from distance.
func (w *window) match(distance, length int) {
	for length > 0 {
		from := w.pos - distance
		if from < 0 {
			from += len(w.ring)
		}
		n := min(length, len(w.ring)-w.pos, len(w.ring)-from)
		repeat(w.ring, from, w.pos, n)
		w.advance(n)
		length -= n
	}
}

// repeat copies n bytes from one place to a later one as if byte by byte.
func repeat(ring []byte, from, to, n int) {
	gap := to - from
	if gap < 0 || gap >= n { // they do not overlap in the way that matters
		copy(ring[to:to+n], ring[from:from+n])
		return
	}
	if n <= 16 {
		for i := range n {
			ring[to+i] = ring[from+i]
		}
		return
	}
	for done := 0; done < n; {
		step := copy(ring[to+done:to+n], ring[from:to+done])
		done += step
	}
}

// write puts bytes that were not compressed.
func (w *window) write(p []byte) {
	for len(p) > 0 {
		n := copy(w.ring[w.pos:], p)
		w.advance(n)
		p = p[n:]
	}
}

// take moves decoded bytes to p.
func (w *window) take(p []byte) int {
	n := min(len(p), w.count, len(w.ring)-w.taken)
	copy(p, w.ring[w.taken:w.taken+n])
	w.taken += n
	if w.taken == len(w.ring) {
		w.taken = 0
	}
	w.count -= n
	return n
}
