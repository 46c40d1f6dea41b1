package importer

import (
	"encoding/binary"
	"errors"
	"io"
	"math/bits"
	"os"

	"github.com/slipway-vm/slipway/internal/transfer"
)

// Sizes of a window: pieces as large as most images' clusters, and more of them than the writers' units
// have bytes, so that a stream goes on while the writers unpack what they have. A slab is of the pieces
// that are read at a time, past the buffers in between.
const (
	pieceSize   = 64 << 10
	slabSize    = 1 << 20
	slabLimit   = 12
	sectorSize  = 512
	pieceSector = pieceSize / sectorSize
	// A page of the scratch file has a record for each piece of a group.
	recordSize = 32
	pageSize   = 4 << 10
	groupSize  = pageSize / recordSize
)

// sectors has a bit for each sector of a piece.
type sectors [pieceSector / 64]uint64

func (s *sectors) set(n int64)      { s[n/64] |= 1 << (n % 64) }
func (s *sectors) has(n int64) bool { return s[n/64]&(1<<(n%64)) != 0 }

// before is how many of the sectors before n are set.
func (s *sectors) before(n int64) (count int64) {
	for word := range s {
		mask := uint64(1)<<max(0, min(64, n-int64(word)*64)) - 1
		count += int64(bits.OnesCount64(s[word] & mask))
	}
	return count
}

func (s *sectors) full() bool {
	for _, word := range s {
		if ^word != 0 {
			return false
		}
	}
	return true
}

// window is the part of a stream that is in memory. A piece leaves it once all of it was read by
// whom it is for; when there is no room the oldest leaves, and what nobody has read of it is added to
// the scratch file. It belongs to whoever holds its spool's lock.
type window struct {
	scratch *os.File
	size    int64            // of the scratch file
	pages   map[int64]int64  // where in it the records of a group of pieces stand
	held    map[int64]*piece // by number
	oldest  int64            // no piece before it is held
	slabs   int              // how many were made
	free    []*slab
}

// piece is pieceSize bytes of the stream, fewer at its end.
type piece struct {
	data []byte
	used sectors // those that nobody reads again
	of   *slab
}

// slab is the memory of pieces that came together.
type slab struct {
	data []byte
	held int // pieces of it that are in the window
}

// room returns a slab that holds nothing, nil when there is none.
func (w *window) room() *slab {
	if last := len(w.free) - 1; last >= 0 {
		s := w.free[last]
		w.free = w.free[:last]
		return s
	}
	if w.slabs == slabLimit {
		return nil
	}
	w.slabs++
	return &slab{data: make([]byte, slabSize)}
}

// hold adds the first bytes of a slab to the window, as the pieces from number on.
func (w *window) hold(number int64, s *slab, bytes int) {
	for off := 0; off < bytes; off += pieceSize {
		w.held[number] = &piece{data: s.data[off:min(off+pieceSize, bytes)], of: s}
		number++
		s.held++
	}
	if s.held == 0 {
		w.free = append(w.free, s)
	}
}

func (w *window) release(number int64) {
	s := w.held[number].of
	delete(w.held, number)
	if s.held--; s.held == 0 {
		w.free = append(w.free, s)
	}
}

func (w *window) releaseAll() {
	for number := range w.held {
		w.release(number)
	}
}

// use notes that the bytes from off to end of a piece are read by nobody else, as far as these are
// whole sectors. It reports whether the piece has left the window therefore.
func (w *window) use(number, off, end int64) bool {
	p := w.held[number]
	for n := (off + sectorSize - 1) / sectorSize; n < end/sectorSize; n++ {
		p.used.set(n)
	}
	if !p.used.full() {
		return false
	}
	w.release(number)
	return true
}

// evict lets the oldest piece go.
func (w *window) evict() error {
	for w.held[w.oldest] == nil {
		w.oldest++
	}
	number := w.oldest
	if err := w.spill(number, w.held[number]); err != nil {
		return transfer.Errorf(transfer.NoSpace,
			"the image comes as a stream, and its scratch cannot be written: %w; let its server answer range requests and give no checksum, or take a larger volume", err)
	}
	w.release(number)
	return nil
}

// record says where in the scratch file the sectors of a piece stand that are kept, one behind the other.
type record struct {
	kept sectors
	at   int64
}

// spill adds what of a piece is not used to the scratch file, and its record.
func (w *window) spill(number int64, p *piece) error {
	page, ok := w.pages[number/groupSize]
	if !ok {
		page, w.size = w.size, w.size+pageSize
		w.pages[number/groupSize] = page
	}
	r := record{at: w.size}
	rest := make([]byte, 0, len(p.data))
	for n := int64(0); n*sectorSize < int64(len(p.data)); n++ {
		if !p.used.has(n) {
			r.kept.set(n)
			rest = append(rest, p.data[n*sectorSize:min((n+1)*sectorSize, int64(len(p.data)))]...)
		}
	}
	if _, err := w.scratch.WriteAt(rest, r.at); err != nil {
		return err //nolint:wrapcheck // the caller says what it was writing
	}
	w.size += int64(len(rest))
	if _, err := w.scratch.WriteAt(r.encode(), page+number%groupSize*recordSize); err != nil {
		return err //nolint:wrapcheck // likewise
	}
	return nil
}

func (r *record) encode() []byte {
	data := binary.LittleEndian.AppendUint64(make([]byte, 0, recordSize), uint64(r.at)) //nolint:gosec // it is not negative
	for _, word := range r.kept {
		data = binary.LittleEndian.AppendUint64(data, word)
	}
	return data
}

// find reads the record of a piece that has left the window; that of one of which nothing is kept
// may never have been written.
func (w *window) find(number int64) (r record, err error) {
	page, ok := w.pages[number/groupSize]
	if !ok {
		return r, nil
	}
	var data [recordSize]byte
	if _, err := w.scratch.ReadAt(data[:], page+number%groupSize*recordSize); err != nil && !errors.Is(err, io.EOF) {
		return r, transfer.Errorf(transfer.TargetFailed, "reading the scratch file: %w", err)
	}
	r.at = int64(binary.LittleEndian.Uint64(data[:])) //nolint:gosec // as it was written
	for n := range r.kept {
		r.kept[n] = binary.LittleEndian.Uint64(data[8+8*n:])
	}
	return r, nil
}

// read reads bytes, from off in it, of the piece of that number. It needs no lock: what has left the
// window does not change.
func (r *record) read(scratch *os.File, number int64, b []byte, off int64) error {
	for n := off / sectorSize; n*sectorSize < off+int64(len(b)); n++ {
		if !r.kept.has(n) {
			return transfer.Errorf(transfer.WrongFormat, "the image comes as a stream, and what stands at byte %d of it is two parts of its disk, which is not supported; "+
				"convert it anew (qemu-img convert), or let its server answer range requests and give no checksum", number*pieceSize+n*sectorSize)
		}
	}
	if _, err := scratch.ReadAt(b, r.at+r.kept.before(off/sectorSize)*sectorSize+off%sectorSize); err != nil {
		return transfer.Errorf(transfer.TargetFailed, "reading the scratch file: %w", err)
	}
	return nil
}
