package xz

import (
	"bytes"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"io"
	"math/rand/v2"
	"os/exec"
	"runtime"
	"slices"
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
	for name, file := range map[string][]byte{"one block": packed(t, data), "blocks side by side": packed(t, data, "-T2", "--block-size=100KiB")} {
		for n := 0; n < len(file); n += 1 + len(file)/300 {
			if _, err := io.ReadAll(NewReader(bytes.NewReader(file[:n]), 64<<20)); !errors.Is(err, io.ErrUnexpectedEOF) {
				t.Errorf("%s, cut after %d bytes: %v", name, n, err)
			}
			bad := bytes.Clone(file)
			bad[n] ^= 0x10
			if _, err := io.ReadAll(NewReader(bytes.NewReader(bad), 64<<20)); err == nil {
				t.Errorf("%s: a wrong bit in byte %d was not noticed", name, n)
			}
		}
	}
}

func TestBlocksAreDecodedSideBySideWithinTheirMemory(t *testing.T) {
	data := bytes.Repeat(samples()["everything"], 3)
	for name, c := range map[string]struct {
		file  []byte
		limit int64
		want  int
	}{
		"small blocks":                 {packed(t, data, "-T2", "--block-size=1MiB"), 64 << 20, runtime.GOMAXPROCS(0)},
		"blocks that take too much":    {packed(t, data[:8<<20], "-T2", "--block-size=4MiB", "--lzma2=dict=64KiB"), 8 << 20, 0},
		"blocks that tell no sizes":    {packed(t, data, "-T1", "--block-size=1MiB"), 64 << 20, 0},
		"one block that is not packed": {packed(t, data[:1000], "-T2"), 64 << 20, 1},
	} {
		r := NewReader(bytes.NewReader(c.file), c.limit)
		most, got := 0, 0
		for buffer := make([]byte, 64<<10); ; {
			n, err := r.Read(buffer)
			if !bytes.Equal(buffer[:n], data[got:got+n]) {
				t.Fatalf("%s: other bytes at %d", name, got)
			}
			got += n
			side := len(r.ahead)
			if r.current != nil && r.current.decoded != nil {
				side++
			}
			most = max(most, side)
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
		}
		if most != c.want {
			t.Errorf("%s: %d blocks at a time, want %d", name, most, c.want)
		}
	}
}

func TestABlockWithOtherSizesThanItsHeaderSays(t *testing.T) {
	file := packed(t, samples()["text"], "-T2", "--block-size=1MiB")
	head := bytes.Clone(file[headerSize : headerSize+(int(file[headerSize])+1)*4])
	at := bytes.Index(head, []byte{0x80, 0x80, 0x40}) // 1 MiB as a number of xz
	if at < 0 {
		t.Fatalf("the header % x does not tell the block's size", head)
	}
	for _, size := range [][]byte{{0x80, 0x80, 0x20}, {0x80, 0x80, 0x7f}} {
		copy(head[at:], size)
		binary.LittleEndian.PutUint32(head[len(head)-4:], crc32.ChecksumIEEE(head[:len(head)-4]))
		lying := slices.Concat(file[:headerSize], head, file[headerSize+len(head):])
		if _, err := io.ReadAll(NewReader(bytes.NewReader(lying), 64<<20)); !errors.Is(err, ErrFormat) {
			t.Errorf("with the size % x: %v", size, err)
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
	xz := need.Program(f, "xz", "xz-utils")
	f.Fuzz(func(t *testing.T, file []byte) {
		got, err := io.ReadAll(io.LimitReader(NewReader(bytes.NewReader(file), 1<<20), 8<<20))
		if err != nil || len(got) == 8<<20 {
			return
		}
		cmd := exec.Command(xz, "-dcq")
		cmd.Stdin = bytes.NewReader(file)
		if want, err := cmd.Output(); err != nil || !bytes.Equal(got, want) {
			t.Fatalf("decoded %d bytes, where xz gives %d and %v", len(got), len(want), err)
		}
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
