package deflate

import (
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"io"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/iotest"
)

// zipped is data as a gzip file with every field that a header can have.
func zipped(tb testing.TB, data []byte, level int) []byte {
	tb.Helper()
	var packed bytes.Buffer
	w, err := gzip.NewWriterLevel(&packed, level)
	if err != nil {
		tb.Fatal(err)
	}
	w.Name, w.Comment, w.Extra = "disk.img", "a disk", bytes.Repeat([]byte("xy"), 3000)
	for chunk := range chunks(data, 33_333) {
		_, _ = w.Write(chunk)
		_ = w.Flush()
	}
	_ = w.Close()
	return packed.Bytes()
}

// large is content of several times the size of a stream's buffers.
func large() []byte {
	random := rand.New(rand.NewPCG(5, 6))
	parts := make([][]byte, 0, 100)
	all := contents()
	for _, name := range []string{"noise", "words", "zeros", "skewed", "periods", "mixed"} {
		for range 4 {
			data := all[name]
			from := random.IntN(len(data))
			parts = append(parts, data[from:], data)
		}
	}
	return bytes.Join(parts, nil)
}

func TestGzipFilesAreUnpacked(t *testing.T) {
	all := contents()
	all["large"] = large()
	for name, want := range all {
		for _, level := range []int{gzip.HuffmanOnly, gzip.NoCompression, 1, 6, 9} {
			packed := zipped(t, want, level)
			for how, r := range map[string]io.Reader{
				"whole":               bytes.NewReader(packed),
				"by halves":           iotest.HalfReader(bytes.NewReader(packed)),
				"with io.EOF at once": iotest.DataErrReader(bytes.NewReader(packed)),
			} {
				got, err := io.ReadAll(NewGzip(r))
				if err != nil || !bytes.Equal(got, want) {
					t.Errorf("%s at level %d, read %s: %d of %d bytes, %v", name, level, how, len(got), len(want), err)
				}
			}
		}
	}
	got, err := io.ReadAll(iotest.OneByteReader(NewGzip(iotest.OneByteReader(bytes.NewReader(zipped(t, all["mixed"], 6))))))
	if err != nil || !bytes.Equal(got, all["mixed"]) {
		t.Errorf("byte by byte: %d bytes, %v", len(got), err)
	}
}

func TestGzipMembersOneAfterAnother(t *testing.T) {
	file := zipped(t, []byte("one "), 6)
	file = append(file, zipped(t, nil, 6)...)
	file = append(file, make([]byte, 5)...)
	file = append(file, zipped(t, []byte("two"), 6)...)
	file = append(file, make([]byte, 300_000)...)
	got, err := io.ReadAll(NewGzip(bytes.NewReader(file)))
	if err != nil || string(got) != "one two" {
		t.Errorf("got %q, %v", got, err)
	}
	if _, err := io.ReadAll(NewGzip(bytes.NewReader(append(file, "garbage behind it"...)))); !errors.Is(err, ErrFormat) {
		t.Errorf("with something else behind: got %v, want ErrFormat", err)
	}
}

func TestGzipFilesThatAreCutOffOrChanged(t *testing.T) {
	want := contents()["mixed"]
	file := zipped(t, want, 6)
	for n := 0; n < len(file); n += 1 + n/30 {
		if _, err := io.ReadAll(NewGzip(bytes.NewReader(file[:n]))); !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Errorf("cut after %d bytes: got %v, want io.ErrUnexpectedEOF", n, err)
		}
		broken := bytes.Clone(file)
		broken[n] ^= 0x10
		got, err := io.ReadAll(NewGzip(bytes.NewReader(broken)))
		if err == nil && !bytes.Equal(got, want) {
			t.Errorf("a wrong bit in byte %d went unnoticed", n)
		}
	}
}

func TestAGzipHeaderHasAChecksum(t *testing.T) {
	head := []byte{0x1f, 0x8b, 8, flagHeaderSum, 0, 0, 0, 0, 0, 255}
	empty := []byte{0x03, 0, 0, 0, 0, 0, 0, 0, 0, 0} // one block with nothing in it, a checksum, a size
	sum := binary.LittleEndian.AppendUint16(nil, uint16(crc32.ChecksumIEEE(head)&0xffff))
	if got, err := io.ReadAll(NewGzip(bytes.NewReader(slices.Concat(head, sum, empty)))); err != nil || len(got) > 0 {
		t.Errorf("got %d bytes, %v", len(got), err)
	}
	sum[0]++
	if _, err := io.ReadAll(NewGzip(bytes.NewReader(slices.Concat(head, sum, empty)))); !errors.Is(err, ErrChecksum) {
		t.Errorf("with a wrong one: got %v, want ErrChecksum", err)
	}
}

func TestASourcesErrorIsItsOwn(t *testing.T) {
	lost := errors.New("the connection is lost")
	file := zipped(t, large(), 6)
	_, err := io.ReadAll(NewGzip(io.MultiReader(bytes.NewReader(file[:len(file)/2]), iotest.ErrReader(lost))))
	if !errors.Is(err, lost) {
		t.Errorf("got %v, want the source's error", err)
	}
}

// FuzzGzip compares with the decoder of the standard library, but for the zeros that may follow a file here.
func FuzzGzip(f *testing.F) {
	for _, data := range contents() {
		for _, level := range []int{gzip.HuffmanOnly, gzip.NoCompression, 1, 6} {
			f.Add(zipped(f, data[:min(len(data), 3000)], level))
		}
	}
	f.Fuzz(func(t *testing.T, file []byte) {
		const most = 4 << 20
		var want []byte
		r, wantErr := gzip.NewReader(bytes.NewReader(file))
		if wantErr == nil {
			want, wantErr = io.ReadAll(io.LimitReader(r, most))
		}
		got, err := io.ReadAll(io.LimitReader(NewGzip(bytes.NewReader(file)), most))
		if wantErr == nil && (err != nil || !bytes.Equal(got, want)) {
			t.Fatalf("got %d bytes, %v; the standard library %d", len(got), err, len(want))
		}
		if err == nil && wantErr != nil && bytes.Equal(bytes.TrimRight(file, "\x00"), file) {
			t.Fatalf("got %d bytes; the standard library refuses: %v", len(got), wantErr)
		}
	})
}

func BenchmarkGzip(b *testing.B) {
	data := bytes.Repeat(contents()["words"], 50)
	packed := zipped(b, data, 6)
	b.Run("this", func(b *testing.B) {
		b.SetBytes(int64(len(data)))
		for b.Loop() {
			if _, err := io.Copy(io.Discard, NewGzip(bytes.NewReader(packed))); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("standard", func(b *testing.B) {
		b.SetBytes(int64(len(data)))
		for b.Loop() {
			r, err := gzip.NewReader(bytes.NewReader(packed))
			if err != nil {
				b.Fatal(err)
			}
			if _, err := io.Copy(io.Discard, r); err != nil {
				b.Fatal(err)
			}
		}
	})
}
