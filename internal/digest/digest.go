// Package digest names the content of a disk by a Merkle root over its blocks, so that it
// can be computed while the disk is written in any order by many writers.
//
// The format, version 2, where H is BLAKE3 with 32 bytes of output
// (https://github.com/BLAKE3-team/BLAKE3-specs):
//
//   - The disk is cut into blocks of 1 MiB; the last one is padded with zero bytes.
//   - A block of zeros has the leaf of 32 zero bytes; any other has H(block).
//   - Leaves are padded with zero leaves to a power of two. Two children of zero bytes
//     have a parent of zero bytes; any other parent is H(left ‖ right). A leaf's
//     input is always 1 MiB long and a parent's 64 bytes, so neither passes for the other.
//   - The digest is H("slipway-disk-2" ‖ size ‖ root), size in bytes as 8 bytes
//     big endian, written as "slipway2:" and 64 hexadecimal digits.
//
// Version 1 has SHA-256 for H, "slipway-disk-1" and "slipway1:". Disks that were filled before
// there was a version 2 have such digests, so they are still verified ([Like]), but none is made.
//
// Zero blocks cost nothing, so a sparse disk of any size is as cheap as its data.
package digest

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"math/bits"
	"slices"
	"strings"
	"sync"

	"github.com/zeebo/blake3"
)

// BlockSize is the size of a block in bytes.
const BlockSize = 1 << 20

type hash [32]byte

// version is what differs between the versions of the format.
type version struct {
	prefix, domain string
	sum            func([]byte) [32]byte
}

var (
	first   = version{"slipway1:", "slipway-disk-1", sha256.Sum256}
	current = version{"slipway2:", "slipway-disk-2", blake3.Sum256}
)

// chunk is a stretch of leaves that is allocated when its first leaf arrives: 1 GiB of disk.
const chunkBits = 10

type chunk [1 << chunkBits]hash

// Tree collects the blocks of one disk. Put may be called from many goroutines.
type Tree struct {
	version version
	mu      sync.Mutex
	chunks  map[int64]*chunk
}

// New returns the tree of a disk whose blocks are all zero until Put says otherwise.
func New() *Tree {
	return &Tree{version: current, chunks: map[int64]*chunk{}}
}

// Like returns such a tree whose Sum is comparable with text: a digest of the same version.
// A text that is a digest of no version known here is an error.
func Like(text string) (*Tree, error) {
	for _, v := range []version{current, first} {
		if strings.HasPrefix(text, v.prefix) {
			return &Tree{version: v, chunks: map[int64]*chunk{}}, nil
		}
	}
	return nil, fmt.Errorf("%q is not a digest of a disk: it would begin with %q, or %q before there was that one", text, current.prefix, first.prefix)
}

// Known reports whether text begins as a digest of a version known here.
func Known(text string) bool {
	_, err := Like(text)
	return err == nil
}

// Put sets the block that begins at index*BlockSize. Bytes that block lacks are zeros.
// Blocks of zeros need no Put; putting one is right, too.
func (t *Tree) Put(index int64, block []byte) {
	leaf := t.version.leaf(block)
	t.mu.Lock()
	defer t.mu.Unlock()
	c := t.chunks[index>>chunkBits]
	if c == nil {
		if leaf == (hash{}) {
			return
		}
		c = new(chunk)
		t.chunks[index>>chunkBits] = c
	}
	c[index&(1<<chunkBits-1)] = leaf
}

// Sum returns the digest of the disk, which has size bytes; no block that was put begins past it.
func (t *Tree) Sum(bytes int64) string {
	t.mu.Lock()
	defer t.mu.Unlock()
	keys := make([]int64, 0, len(t.chunks))
	for key := range t.chunks {
		keys = append(keys, key)
	}
	slices.Sort(keys)
	blocks := (bytes + BlockSize - 1) / BlockSize
	height := max(chunkBits, bits.Len64(uint64(max(blocks, 1)-1)))
	root := t.node(keys, 0, height)
	// A tree lower than a chunk is the chunk's left edge: parents of its zero right siblings are not part of it.
	if low := bits.Len64(uint64(max(blocks, 1) - 1)); low < chunkBits {
		root = hash{}
		if c := t.chunks[0]; c != nil {
			root = t.version.fold(c[:1<<low])
		}
	}
	sized := binary.BigEndian.AppendUint64([]byte(t.version.domain), uint64(bytes))
	sum := t.version.sum(append(sized, root[:]...))
	return t.version.prefix + hex.EncodeToString(sum[:])
}

// node returns the hash of the subtree of the given height that begins at chunk first; keys are its chunks.
func (t *Tree) node(keys []int64, first int64, height int) hash {
	if len(keys) == 0 {
		return hash{}
	}
	if height == chunkBits {
		return t.version.fold(t.chunks[first][:])
	}
	middle := first + 1<<(height-1-chunkBits)
	split, _ := slices.BinarySearch(keys, middle)
	return t.version.parent(t.node(keys[:split], first, height-1), t.node(keys[split:], middle, height-1))
}

// fold returns the root over leaves, a power of two of them.
func (v version) fold(leaves []hash) hash {
	level := slices.Clone(leaves)
	for len(level) > 1 {
		for i := range len(level) / 2 {
			level[i] = v.parent(level[2*i], level[2*i+1])
		}
		level = level[:len(level)/2]
	}
	return level[0]
}

func (v version) parent(left, right hash) hash {
	if left == (hash{}) && right == (hash{}) {
		return hash{}
	}
	return v.sum(append(left[:], right[:]...))
}

func (v version) leaf(block []byte) hash {
	if IsZero(block) {
		return hash{}
	}
	if len(block) < BlockSize {
		padded := make([]byte, BlockSize)
		copy(padded, block)
		block = padded
	}
	return v.sum(block[:BlockSize])
}
