package importer

import (
	"bytes"
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sync/errgroup"

	"github.com/slipway-vm/slipway/importer/image"
	"github.com/slipway-vm/slipway/internal/transfer"
)

// spooled is a stream of size bytes that do not repeat, and a spool of it that is being filled until the test ends.
func spooled(t *testing.T, size int) ([]byte, *spool) {
	t.Helper()
	data := make([]byte, size)
	rand.NewChaCha8([32]byte{1}).Read(data) //nolint:errcheck // it cannot fail
	s, err := newSpool(filepath.Join(t.TempDir(), "scratch"), int64(size))
	if err != nil {
		t.Fatal(err)
	}
	filled := make(chan error, 1)
	go func() { filled <- s.fill(bytes.NewReader(data)) }()
	t.Cleanup(func() {
		s.rest()
		if err := <-filled; err != nil {
			t.Errorf("filling: %v", err)
		}
		if err := s.window.scratch.Close(); err != nil {
			t.Error(err)
		}
	})
	return data, s
}

// want reads a stretch and compares it.
func want(t *testing.T, from io.ReaderAt, data []byte, off, length int) {
	t.Helper()
	got := make([]byte, length)
	if n, err := from.ReadAt(got, int64(off)); n != length || err != nil {
		t.Fatalf("reading %d bytes at %d: %d, %v", length, off, n, err)
	}
	if !bytes.Equal(got, data[off:off+length]) {
		t.Fatalf("the %d bytes at %d are others than came", length, off)
	}
}

func (s *spool) scratchSize() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.window.size
}

func TestAStreamThatIsReadInOrderNeedsHardlyAnyScratch(t *testing.T) {
	const size, tables = 40 << 20, 3 * pieceSize
	// One of several workers may get no processor while the others go on, so that what comes for it leaves the window.
	for workers, most := range map[int]int64{1: tables + pieceSize + size/image.MinUnit*sectorSize + 16*pageSize, 4: size} {
		data, s := spooled(t, size)
		want(t, s, data, 0, tables)
		work := make(chan extent)
		var group errgroup.Group
		for range workers {
			group.Go(func() error { return readSpans(s, data[tables:], tables, work) })
		}
		file{inOrder: true}.handOut(t.Context(), rawImage(size-tables), workers, work)
		close(work)
		if err := group.Wait(); err != nil {
			t.Fatal(err)
		}
		// The tables, the last sector of each stretch, and records.
		if got := s.scratchSize(); got > most {
			t.Errorf("with %d workers %d bytes went to the scratch file, want at most %d", workers, got, most)
		}
		want(t, s, data, pieceSize-100, 200) // tables are read again, wherever they are
	}
}

// readSpans reads spans of a disk that begins at off of the stream, and compares them.
func readSpans(s *spool, disk []byte, off int64, spans <-chan extent) error {
	for span := range spans {
		got := make([]byte, span.end-span.begin)
		if _, err := (once{s}).ReadAt(got, off+span.begin); err != nil {
			return err
		}
		if !bytes.Equal(got, disk[span.begin:span.end]) {
			return errors.New("other bytes than came")
		}
		close(span.done)
	}
	return nil
}

// Clusters that are not packed leave the window whole: what comes next needs no reader that waits for it, nor scratch.
func TestWhatSharesNoSectorLeavesTheWindow(t *testing.T) {
	const size = 3 * slabLimit * slabSize
	data, s := spooled(t, size)
	for off := 0; off < size; off += image.MinUnit {
		want(t, once{s}.Unshared(), data, off, image.MinUnit)
		s.mu.Lock()
		held := len(s.window.held)
		s.mu.Unlock()
		if most := slabLimit * slabSize / pieceSize; held > most {
			t.Fatalf("at %d the window has %d pieces, room for %d", off, held, most)
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.window.size != 0 || len(s.window.held) != 0 || s.window.slabs > slabLimit {
		t.Errorf("%d bytes went to the scratch file, %d pieces and %d slabs are left", s.window.size, len(s.window.held), s.window.slabs)
	}
}

func TestAStreamIsReadInAnyOrder(t *testing.T) {
	const size = 24<<20 + 12345
	data, s := spooled(t, size)
	random := rand.New(rand.NewPCG(1, 2))
	// Stretches of any length, none of which is a whole number of sectors, by one reader from the last to the first,
	// then in no order.
	var starts []int
	for off := 0; off < size; off += 1 + random.IntN(300<<10) {
		starts = append(starts, off)
	}
	ends := append(append([]int(nil), starts[1:]...), size)
	order := random.Perm(len(starts))
	order[0], order[len(order)-1] = len(starts)-1, order[0]
	seen := map[int]bool{}
	for _, n := range order {
		if !seen[n] {
			want(t, once{s}, data, starts[n], ends[n]-starts[n])
		}
		seen[n] = true
	}
	short := make([]byte, 1000)
	if n, err := s.ReadAt(short, size-300); n != 300 || err != io.EOF { //nolint:errorlint // io.ReaderAt's contract
		t.Errorf("reading over the end: %d, %v", n, err)
	}
	if n, err := s.ReadAt(short, size+pieceSize); n != 0 || err != io.EOF { //nolint:errorlint // likewise
		t.Errorf("reading behind the end: %d, %v", n, err)
	}
}

// Packed clusters end in the sector in which others begin; what is between two that were read is still there.
func TestASectorOfSeveralClustersIsKept(t *testing.T) {
	data, s := spooled(t, 20<<20)
	const first, second, third = 100, 5000, 5040 // and a tiny one between the second and the third
	sector := func(n int) int { return (n + sectorSize - 1) / sectorSize * sectorSize }
	want(t, once{s}, data, first, sector(second)-first)
	want(t, once{s}, data, third, sector(3*pieceSize)-third)
	want(t, once{s}, data, 19<<20, 1<<20) // the window goes on
	want(t, once{s}, data, second, sector(third)-second)
}

func TestWhatIsReadTwiceIsRefused(t *testing.T) {
	data, s := spooled(t, 20<<20)
	want(t, once{s}, data, pieceSize, 2*pieceSize)
	want(t, once{s}, data, 19<<20, 1<<20)
	_, err := (once{s}).ReadAt(make([]byte, pieceSize), pieceSize)
	if refused, ok := errors.AsType[*transfer.Error](err); !ok || refused.Reason != transfer.WrongFormat || !strings.Contains(err.Error(), "byte 65536") {
		t.Errorf("got %v", err)
	}
}

// While its readers have something to do, a full window waits; the end of the import ends that, too.
func TestAFullWindowWaits(t *testing.T) {
	s, err := newSpool(filepath.Join(t.TempDir(), "scratch"), 1<<30)
	if err != nil {
		t.Fatal(err)
	}
	defer s.window.scratch.Close()
	came := &counting{Reader: rand.NewChaCha8([32]byte{}), most: make(chan struct{})}
	filled := make(chan error, 1)
	go func() { filled <- s.fill(came) }()
	<-came.most
	s.stop(context.Canceled)
	if err := <-filled; !errors.Is(err, context.Canceled) {
		t.Errorf("filling ended with %v", err)
	}
	if s.window.size != 0 || came.n > slabLimit*slabSize {
		t.Errorf("of %d bytes that came, %d went to the scratch file", came.n, s.window.size)
	}
	if _, err := s.ReadAt(make([]byte, 1), 1<<29); !errors.Is(err, context.Canceled) {
		t.Errorf("a reader got %v", err)
	}
}

// counting tells when as much was read as a window holds.
type counting struct {
	io.Reader
	n    int64
	most chan struct{}
}

func (c *counting) Read(p []byte) (int, error) {
	n, err := c.Reader.Read(p)
	before := c.n
	if c.n += int64(n); before < slabLimit*slabSize && c.n >= slabLimit*slabSize {
		close(c.most)
	}
	return n, err
}
