package digest

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"math/rand/v2"
	"testing"
)

// plain computes the digest by the letter of the package comment, with no regard for cost.
func plain(disk []byte) string {
	var level [][]byte
	for off := 0; off < len(disk) || len(level) == 0; off += BlockSize {
		block := make([]byte, BlockSize)
		copy(block, disk[min(off, len(disk)):])
		if bytes.Equal(block, make([]byte, BlockSize)) {
			level = append(level, make([]byte, 32))
			continue
		}
		sum := sha256.Sum256(block)
		level = append(level, sum[:])
	}
	for n := 1; ; n *= 2 {
		if n >= len(level) {
			for len(level) < n {
				level = append(level, make([]byte, 32))
			}
			break
		}
	}
	for len(level) > 1 {
		var next [][]byte
		for i := 0; i < len(level); i += 2 {
			both := append(bytes.Clone(level[i]), level[i+1]...)
			if bytes.Equal(both, make([]byte, 64)) {
				next = append(next, make([]byte, 32))
				continue
			}
			sum := sha256.Sum256(both)
			next = append(next, sum[:])
		}
		level = next
	}
	input := binary.BigEndian.AppendUint64([]byte("slipway-disk-1"), uint64(len(disk)))
	sum := sha256.Sum256(append(input, level[0]...))
	return "slipway1:" + hex.EncodeToString(sum[:])
}

func TestDigestFollowsItsDocumentedFormat(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for _, size := range []int{0, 1, 512, BlockSize - 1, BlockSize, BlockSize + 1, 2 * BlockSize, 3*BlockSize + 7, 5 * BlockSize} {
		disk := make([]byte, size)
		for i := 0; i < size; i += 300_000 {
			disk[i] = byte(random.Uint32())
		}
		got, err := Of(context.Background(), bytes.NewReader(disk), int64(size), 3)
		if err != nil {
			t.Fatal(err)
		}
		if want := plain(disk); got != want {
			t.Errorf("size %d: got %s, want %s", size, got, want)
		}
	}
}

func TestDigestOfMoreThanOneChunk(t *testing.T) {
	size := int64(3<<30) + 5
	blocks := map[int64][]byte{0: {1}, 1023: {2}, 1024: {3}, 3071: {0, 9}, 3072: {7}}
	tree := New()
	for index, block := range blocks {
		tree.Put(index, block)
	}
	level := make([]hash, 4096)
	for index, block := range blocks {
		padded := make([]byte, BlockSize)
		copy(padded, block)
		level[index] = sha256.Sum256(padded)
	}
	root := fold(level)
	input := binary.BigEndian.AppendUint64([]byte(domain), uint64(size))
	sum := sha256.Sum256(append(input, root[:]...))
	if want := Prefix + hex.EncodeToString(sum[:]); tree.Sum(size) != want {
		t.Errorf("got %s, want %s", tree.Sum(size), want)
	}
}

func TestDigestOfAHugeEmptyDiskIsFree(t *testing.T) {
	a, b := New().Sum(1<<62), New().Sum(1<<62+1)
	if a == b {
		t.Error("disks of different size have the same digest")
	}
}

func TestVerify(t *testing.T) {
	disk := bytes.Repeat([]byte("slipway"), 400_000)
	want, err := Of(context.Background(), bytes.NewReader(disk), int64(len(disk)), 2)
	if err != nil {
		t.Fatal(err)
	}
	if err := Verify(context.Background(), bytes.NewReader(disk), int64(len(disk)), want); err != nil {
		t.Error(err)
	}
	disk[len(disk)-1]++
	if err := Verify(context.Background(), bytes.NewReader(disk), int64(len(disk)), want); !errors.Is(err, ErrMismatch) {
		t.Errorf("got %v, want ErrMismatch", err)
	}
	if err := Verify(context.Background(), bytes.NewReader(disk), int64(len(disk)), "sha256:00"); err == nil {
		t.Error("a foreign digest was accepted")
	}
}
