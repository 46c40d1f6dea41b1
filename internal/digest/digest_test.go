package digest

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"math/rand/v2"
	"testing"

	"github.com/zeebo/blake3"
)

// plain computes the digest by the letter of the package comment, with no regard for cost.
func plain(disk []byte, version string, sum func([]byte) [32]byte) string {
	var level [][]byte
	for off := 0; off < len(disk) || len(level) == 0; off += BlockSize {
		block := make([]byte, BlockSize)
		copy(block, disk[min(off, len(disk)):])
		if bytes.Equal(block, make([]byte, BlockSize)) {
			level = append(level, make([]byte, 32))
			continue
		}
		leaf := sum(block)
		level = append(level, leaf[:])
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
			parent := sum(both)
			next = append(next, parent[:])
		}
		level = next
	}
	input := binary.BigEndian.AppendUint64([]byte("slipway-disk-"+version), uint64(len(disk)))
	whole := sum(append(input, level[0]...))
	return "slipway" + version + ":" + hex.EncodeToString(whole[:])
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
		if want := plain(disk, "2", blake3.Sum256); got != want {
			t.Errorf("size %d: got %s, want %s", size, got, want)
		}
		tree, err := Like(plain(disk, "1", sha256.Sum256))
		if err != nil {
			t.Fatal(err)
		}
		for index := 0; index*BlockSize < size; index++ {
			tree.Put(int64(index), disk[index*BlockSize:min(size, (index+1)*BlockSize)])
		}
		if got, want := tree.Sum(int64(size)), plain(disk, "1", sha256.Sum256); got != want {
			t.Errorf("size %d by version 1: got %s, want %s", size, got, want)
		}
	}
}

// The digests were computed by a script beside this package, with the b3sum and sha256 programs of Debian:
// a change of them makes the digests worthless that are stored.
func TestDigestsStayWhatTheyWere(t *testing.T) {
	disk := bytes.Repeat([]byte("slipway"), 400_000)
	for _, want := range []string{
		"slipway1:55dc2a07181d9239c4fdd9e866f183e2635cb4ec3cca6bc6923c1ed597c29b0d",
		"slipway2:90eec4c34efb3e4dea7b01e062217db550a9377844966a1e0e3eec8b2ce8d3ca",
	} {
		tree, err := Like(want)
		if err != nil {
			t.Fatal(err)
		}
		for off := 0; off < len(disk); off += BlockSize {
			tree.Put(int64(off/BlockSize), disk[off:min(off+BlockSize, len(disk))])
		}
		if got := tree.Sum(int64(len(disk))); got != want {
			t.Errorf("got %s, want %s", got, want)
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
		level[index] = blake3.Sum256(padded)
	}
	root := current.fold(level)
	input := binary.BigEndian.AppendUint64([]byte("slipway-disk-2"), uint64(size))
	sum := blake3.Sum256(append(input, root[:]...))
	if want := "slipway2:" + hex.EncodeToString(sum[:]); tree.Sum(size) != want {
		t.Errorf("got %s, want %s", tree.Sum(size), want)
	}
}

func TestDigestOfAHugeEmptyDiskIsFree(t *testing.T) {
	a, b := New().Sum(1<<62), New().Sum(1<<62+1)
	if a == b {
		t.Error("disks of different size have the same digest")
	}
}

func TestADigestOfNoVersionIsRefused(t *testing.T) {
	for _, text := range []string{"", "sha256:00", "slipway3:00"} {
		if _, err := Like(text); err == nil || Known(text) {
			t.Errorf("%q passes for a digest", text)
		}
	}
	if !Known(New().Sum(1)) {
		t.Error("a new digest is not known")
	}
}
