// Package digest names the content of a disk by a Merkle root over its blocks, so that it
// can be computed while the disk is written in any order by many writers.
//
// The format, version 1:
//
//   - The disk is cut into blocks of 1 MiB; the last one is padded with zero bytes.
//   - A block of zeros has the leaf of 32 zero bytes; any other has SHA-256(block).
//   - Leaves are padded with zero leaves to a power of two. Two children of zero bytes
//     have a parent of zero bytes; any other parent is SHA-256(left ‖ right). A leaf's
//     input is always 1 MiB long and a parent's 64 bytes, so neither passes for the other.
//   - The digest is SHA-256("slipway-disk-1" ‖ size ‖ root), size in bytes as 8 bytes
//     big endian, written as "slipway1:" and 64 hexadecimal digits.
//
// Zero blocks cost nothing, so a sparse disk of any size is as cheap as its data.
package digest

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"math/bits"
	"slices"
	"sync"
)

// BlockSize is the size of a block in bytes.
const BlockSize = 1 << 20

// Prefix begins every digest of this version.
const Prefix = "slipway1:"

const domain = "slipway-disk-1"

// chunk is a stretch of leaves that is allocated when its first leaf arrives: 1 GiB of disk.
const chunkBits = 10

type hash [sha256.Size]byte

type chunk [1 << chunkBits]hash

// Tree collects the blocks of one disk. Put may be called from many goroutines.
type Tree struct {
	mu     sync.Mutex
	chunks map[int64]*chunk
}

// New returns the tree of a disk whose blocks are all zero until Put says otherwise.
func New() *Tree {
	return &Tree{chunks: map[int64]*chunk{}}
}

// Put sets the block that begins at index*BlockSize. Bytes that block lacks are zeros.
// Blocks of zeros need no Put; putting one is right, too.
func (t *Tree) Put(index int64, block []byte) {
	leaf := leafOf(block)
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
			root = fold(c[:1<<low])
		}
	}
	var size [8]byte
	binary.BigEndian.PutUint64(size[:], uint64(bytes))
	h := sha256.New()
	h.Write([]byte(domain))
	h.Write(size[:])
	h.Write(root[:])
	return Prefix + hex.EncodeToString(h.Sum(nil))
}

// node returns the hash of the subtree of the given height that begins at chunk first; keys are its chunks.
func (t *Tree) node(keys []int64, first int64, height int) hash {
	if len(keys) == 0 {
		return hash{}
	}
	if height == chunkBits {
		return fold(t.chunks[first][:])
	}
	middle := first + 1<<(height-1-chunkBits)
	split, _ := slices.BinarySearch(keys, middle)
	return parent(t.node(keys[:split], first, height-1), t.node(keys[split:], middle, height-1))
}

// fold returns the root over leaves, a power of two of them.
func fold(leaves []hash) hash {
	level := slices.Clone(leaves)
	for len(level) > 1 {
		for i := range len(level) / 2 {
			level[i] = parent(level[2*i], level[2*i+1])
		}
		level = level[:len(level)/2]
	}
	return level[0]
}

func parent(left, right hash) hash {
	if left == (hash{}) && right == (hash{}) {
		return hash{}
	}
	var both [2 * sha256.Size]byte
	copy(both[:], left[:])
	copy(both[sha256.Size:], right[:])
	return sha256.Sum256(both[:])
}

func leafOf(block []byte) hash {
	if IsZero(block) {
		return hash{}
	}
	if len(block) >= BlockSize {
		return sha256.Sum256(block[:BlockSize])
	}
	h := sha256.New()
	h.Write(block)
	h.Write(zeros[:BlockSize-len(block)])
	return hash(h.Sum(nil))
}
