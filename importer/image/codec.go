package image

import (
	"bytes"
	"fmt"
	"io"
	"sync"

	"github.com/klauspost/compress/zstd"

	"github.com/slipway-vm/slipway/importer/image/deflate"
)

// maxPacked bounds the packed form of a cluster: its length field cannot say more than this for the largest one.
const maxPacked = 2*MaxCluster + 1024

// codec unpacks clusters; one goroutine uses it at a time.
type codec struct {
	packed []byte
	source bytes.Reader
	flate  deflate.Decoder
	zstd   *zstd.Decoder // nil in an image that is packed with zlib
}

// codecPool keeps codecs for reuse.
type codecPool struct {
	zstd bool
	pool sync.Pool
}

func (p *codecPool) take() (*codec, error) {
	if c, ok := p.pool.Get().(*codec); ok {
		return c, nil
	}
	c := &codec{}
	if p.zstd {
		var err error
		c.zstd, err = zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true), zstd.WithDecoderMaxWindow(8<<20))
		if err != nil {
			return nil, fmt.Errorf("making a zstd decoder: %w", err)
		}
	}
	return c, nil
}

func (p *codecPool) put(c *codec) { p.pool.Put(c) }

// input returns a buffer for length packed bytes.
func (c *codec) input(length int64) []byte {
	length = min(length, maxPacked)
	if int64(cap(c.packed)) < length {
		c.packed = make([]byte, length)
	}
	return c.packed[:length]
}

// unpack fills part from packed, whose tail may be padding.
func (c *codec) unpack(part, packed []byte) error {
	if c.zstd == nil {
		if err := c.flate.Decode(part, packed); err != nil {
			return fmt.Errorf("zlib: %w", err)
		}
		return nil
	}
	c.source.Reset(packed)
	if err := c.zstd.Reset(&c.source); err != nil {
		return fmt.Errorf("zstd: %w", err)
	}
	if _, err := io.ReadFull(c.zstd, part); err != nil {
		return fmt.Errorf("zstd, after its first bytes: %w", err)
	}
	return nil
}
