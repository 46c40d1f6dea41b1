package deflate

import (
	"bytes"
	"compress/flate"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"testing"
)

// contents are bytes of several kinds: what they pack to has every kind of block and of code.
func contents() map[string][]byte {
	random := rand.New(rand.NewPCG(3, 4))
	noise := make([]byte, 100_000)
	for n := range noise {
		noise[n] = byte(random.Uint32())
	}
	skewed := make([]byte, 200_000) // codes of very different length
	for n := range skewed {
		skewed[n] = byte(random.ExpFloat64() * 12)
	}
	words := make([]byte, 0, 200_000)
	for len(words) < 200_000 {
		at := int(random.ExpFloat64()*300) % 5000
		words = append(words, noise[at:at+2+at%13]...)
	}
	periods := []byte{}
	for back := 1; back < 40; back++ { // matches of every small distance
		periods = append(periods, bytes.Repeat(noise[back*50:back*50+back], 300/back+1)...)
	}
	return map[string][]byte{
		"nothing": {}, "a byte": {7}, "zeros": make([]byte, 300_000), "noise": noise, "skewed": skewed, "words": words, "periods": periods,
		"short": []byte("a slipway is a ramp, a ramp is a slipway"), "mixed": bytes.Join([][]byte{words[:50_000], noise, skewed[:9999], words}, nil),
	}
}

func pack(tb testing.TB, data []byte, level int) []byte {
	tb.Helper()
	var packed bytes.Buffer
	w, err := flate.NewWriter(&packed, level)
	if err != nil {
		tb.Fatal(err)
	}
	for chunk := range chunks(data, 33_333) { // flushes make empty stored blocks
		_, _ = w.Write(chunk)
		_ = w.Flush()
	}
	_ = w.Close()
	return packed.Bytes()
}

func chunks(data []byte, size int) func(func([]byte) bool) {
	return func(yield func([]byte) bool) {
		for len(data) > 0 {
			n := min(size, len(data))
			if !yield(data[:n]) {
				return
			}
			data = data[n:]
		}
	}
}

func TestDecodeWhatOthersPack(t *testing.T) {
	var d Decoder
	for name, want := range contents() {
		for _, level := range []int{flate.HuffmanOnly, flate.NoCompression, 1, 6, 9} {
			t.Run(fmt.Sprintf("%s at level %d", name, level), func(t *testing.T) {
				packed := pack(t, want, level)
				for _, padding := range []int{0, 1, 700} {
					got := make([]byte, len(want))
					if err := d.Decode(got, append(bytes.Clone(packed), make([]byte, padding)...)); err != nil {
						t.Fatalf("with padding of %d: %v", padding, err)
					}
					if !bytes.Equal(got, want) {
						t.Fatalf("with padding of %d: other bytes", padding)
					}
				}
				part := make([]byte, len(want)*2/3)
				if err := d.Decode(part, packed); err != nil || !bytes.Equal(part, want[:len(part)]) {
					t.Errorf("a part of the content: %v", err)
				}
				if err := d.Decode(make([]byte, len(want)+1), packed); !errors.Is(err, ErrShort) {
					t.Errorf("for more than there is: got %v, want ErrShort", err)
				}
			})
		}
	}
}

func TestDecodeWhatIsCutOff(t *testing.T) {
	var d Decoder
	want := contents()["mixed"]
	packed := pack(t, want, 6)
	got := make([]byte, len(want))
	for cut := 0; cut < len(packed)-16; cut += 1 + cut/50 {
		if err := d.Decode(got, packed[:cut]); err == nil {
			t.Fatalf("the first %d of %d bytes gave all", cut, len(packed))
		}
	}
}

func TestDecodeRefusesWhatIsBroken(t *testing.T) {
	var d Decoder
	for name, packed := range map[string][]byte{
		"an unknown kind of block":   {0x07, 0, 0, 0},
		"a wrong stored length":      {0x01, 5, 0, 5, 0, 1, 2, 3, 4, 5},
		"a distance before the data": {0x03, 0x02, 0x00, 0x00},
		"too many codes":             {0xfd, 0xff, 0xff, 0xff, 0xff, 0xff},
	} {
		if err := d.Decode(make([]byte, 300), packed); !errors.Is(err, ErrFormat) {
			t.Errorf("%s: got %v, want ErrFormat", name, err)
		}
	}
}

// FuzzDecode compares with the decoder of the standard library: both fail, or both give the same.
func FuzzDecode(f *testing.F) {
	for _, data := range contents() {
		for _, level := range []int{flate.HuffmanOnly, flate.NoCompression, 1, 6} {
			f.Add(pack(f, data[:min(len(data), 3000)], level), uint32(3000))
		}
	}
	var d Decoder
	f.Fuzz(func(t *testing.T, packed []byte, size uint32) {
		want, got := make([]byte, size%(1<<17)), make([]byte, size%(1<<17))
		_, wantErr := io.ReadFull(flate.NewReader(bytes.NewReader(packed)), want)
		err := d.Decode(got, packed)
		if (err == nil) != (wantErr == nil) {
			t.Fatalf("got %v, the standard library %v", err, wantErr)
		}
		if err == nil && !bytes.Equal(got, want) {
			t.Fatal("other bytes than the standard library's")
		}
	})
}

func BenchmarkDecode(b *testing.B) {
	data := contents()["words"][:64<<10]
	packed := pack(b, data, 6)
	out := make([]byte, len(data))
	b.Run("this", func(b *testing.B) {
		var d Decoder
		b.SetBytes(int64(len(data)))
		for b.Loop() {
			if err := d.Decode(out, packed); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("standard", func(b *testing.B) {
		b.SetBytes(int64(len(data)))
		source := bytes.NewReader(packed)
		r := flate.NewReader(source)
		for b.Loop() {
			source.Reset(packed)
			_ = r.(flate.Resetter).Reset(source, nil)
			if _, err := io.ReadFull(r, out); err != nil {
				b.Fatal(err)
			}
		}
	})
}
