package xz

import (
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"os/exec"
	"strings"
	"testing"

	"github.com/slipway-vm/slipway/tests/fixture/need"
)

// packed is data as the xz program packs it.
func packed(tb testing.TB, data []byte, args ...string) []byte {
	tb.Helper()
	cmd := exec.Command(need.Program(tb, "xz", "xz-utils"), append([]string{"-c"}, args...)...)
	cmd.Stdin = bytes.NewReader(data)
	out, err := cmd.Output()
	if err != nil {
		tb.Fatal(err)
	}
	return out
}

// samples are contents that use every kind of symbol.
func samples() map[string][]byte {
	random := rand.NewChaCha8([32]byte{3})
	noise := make([]byte, 300_000)
	_, _ = random.Read(noise)
	var mixed []byte
	for n := range 400 {
		mixed = append(mixed, noise[n*100:n*700]...)
		mixed = append(mixed, strings.Repeat("slipway ", n)...)
		mixed = append(mixed, make([]byte, n*n)...)
		if len(mixed) > 3<<20 {
			mixed = mixed[:3<<20]
		}
	}
	return map[string][]byte{
		"nothing": nil, "a byte": {7}, "zeros": make([]byte, 5<<20), "noise": noise,
		"text": []byte(strings.Repeat("the ramp on which ships are built\n", 50_000)), "everything": mixed,
	}
}

func TestWhatXZPacksIsUnpacked(t *testing.T) {
	for name, data := range samples() {
		for _, args := range [][]string{
			{"-0"}, {"-6"}, {"-9"}, {"-6", "--check=none"}, {"--check=crc32"}, {"--check=sha256"},
			{"-T2", "--block-size=1MiB"}, {"--lzma2=dict=4KiB,lc=0,lp=4,pb=0"}, {"--lzma2=dict=64KiB,lc=4,lp=0,pb=4"}, {"--lzma2=preset=6,mode=fast,nice=2"},
		} {
			file := packed(t, data, args...)
			got, err := io.ReadAll(NewReader(bytes.NewReader(file), 64<<20))
			if err != nil {
				t.Errorf("%s packed with %v: %v", name, args, err)
			} else if !bytes.Equal(got, data) {
				t.Errorf("%s packed with %v became something else", name, args)
			}
		}
	}
}

func TestStreamsOneAfterAnother(t *testing.T) {
	file := append(packed(t, []byte("one ")), make([]byte, 8)...)
	file = append(file, packed(t, []byte("two"))...)
	got, err := io.ReadAll(NewReader(bytes.NewReader(file), 64<<20))
	if err != nil || string(got) != "one two" {
		t.Errorf("got %q, %v", got, err)
	}
}

func TestBrokenStreams(t *testing.T) {
	data := samples()["everything"][:500_000]
	file := packed(t, data)
	for n := 0; n < len(file); n += 1 + len(file)/300 {
		if _, err := io.ReadAll(NewReader(bytes.NewReader(file[:n]), 64<<20)); !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Errorf("cut after %d bytes: %v", n, err)
		}
		bad := bytes.Clone(file)
		bad[n] ^= 0x10
		if _, err := io.ReadAll(NewReader(bytes.NewReader(bad), 64<<20)); err == nil {
			t.Errorf("a wrong bit in byte %d was not noticed", n)
		}
	}
}

func TestWhatIsRefused(t *testing.T) {
	data := make([]byte, 3<<20)
	for _, args := range [][]string{{"--x86", "--lzma2"}, {"-9"}, {"--delta", "--lzma2"}} {
		_, err := io.ReadAll(NewReader(bytes.NewReader(packed(t, data, args...)), 1<<20))
		if !errors.Is(err, ErrUnsupported) {
			t.Errorf("%v: %v", args, err)
		}
	}
}

func FuzzReader(f *testing.F) {
	for _, args := range [][]string{{"-0"}, {"-9"}, {"--check=sha256"}, {"-T2", "--block-size=4KiB"}} {
		f.Add(packed(f, []byte(strings.Repeat("abcabcabcabd", 1000)), args...))
	}
	f.Fuzz(func(_ *testing.T, file []byte) {
		_, _ = io.Copy(io.Discard, io.LimitReader(NewReader(bytes.NewReader(file), 1<<20), 8<<20))
	})
}

func BenchmarkReader(b *testing.B) {
	data := samples()["everything"]
	file := packed(b, data)
	b.SetBytes(int64(len(data)))
	for b.Loop() {
		if _, err := io.Copy(io.Discard, NewReader(bytes.NewReader(file), 64<<20)); err != nil {
			b.Fatal(err)
		}
	}
}
