package image

import (
	"bufio"
	"compress/bzip2"
	"errors"
	"fmt"
	"io"
	"sync/atomic"

	"github.com/klauspost/compress/zstd"

	"github.com/slipway-vm/slipway/importer/image/deflate"
	"github.com/slipway-vm/slipway/importer/image/xz"
	"github.com/slipway-vm/slipway/internal/transfer"
)

// maxWindow bounds the memory of a decoder, and so the importer's.
const maxWindow = 64 << 20

// maxSilent is how much of a compressed stream may lead to nothing, in bytes: what goes on like that, with empty members say,
// would be read for ever. A decoder reads some MiB ahead.
const maxSilent = 256 << 20

// Decode returns the content of a compressed stream.
func Decode(format Format, r *bufio.Reader) (io.ReadCloser, error) {
	return decode(&packed{from: r, format: format, most: maxSilent})
}

func decode(from *packed) (io.ReadCloser, error) {
	in := bufio.NewReaderSize(from, 64<<10)
	switch from.format {
	case Gzip:
		return &decoder{Reader: deflate.NewGzip(in), packed: from}, nil
	case XZ:
		reader := xz.NewReader(in, maxWindow)
		return &decoder{Reader: reader, packed: from, close: reader.Close}, nil
	case Bzip2:
		return &decoder{Reader: bzip2.NewReader(in), packed: from}, nil
	case Zstd:
		reader, err := zstd.NewReader(in, zstd.WithDecoderMaxWindow(maxWindow), zstd.WithDecoderConcurrency(2))
		if err != nil {
			return nil, broken(from.format, err)
		}
		return &decoder{Reader: reader, packed: from, close: reader.Close}, nil
	}
	return nil, transfer.Errorf(transfer.Internal, "no decoder for %s", from.format)
}

// packed is a compressed stream, whose decoder may read it in another goroutine.
type packed struct {
	from   io.Reader
	format Format
	most   int64        // of silent
	silent atomic.Int64 // bytes since something came of them
}

func (p *packed) Read(b []byte) (int, error) {
	if p.silent.Load() > p.most {
		return 0, transfer.Errorf(transfer.InvalidImage, "nothing comes of %d MiB of the %s stream; publish a file that holds an image", p.most>>20, p.format)
	}
	n, err := p.from.Read(b)
	p.silent.Add(int64(n))
	return n, err //nolint:wrapcheck // io.Reader's contract
}

// decoder gives a library's errors a reason.
type decoder struct {
	io.Reader
	packed *packed
	close  func() // nil for one that has nothing to end
}

func (d *decoder) Read(p []byte) (int, error) {
	n, err := d.Reader.Read(p)
	if n > 0 {
		d.packed.silent.Store(0)
	}
	if err != nil && err != io.EOF { //nolint:errorlint // only io.EOF itself is the content's end
		err = broken(d.packed.format, err)
	}
	return n, err
}

// Close ends what works for the decoder.
func (d *decoder) Close() error {
	if d.close != nil {
		d.close()
	}
	return nil
}

// broken is the error of a stream that cannot be unpacked, unless the source's own error is the cause.
func broken(format Format, err error) error {
	if _, ok := errors.AsType[*transfer.Error](err); ok {
		return err //nolint:wrapcheck // it says what happened to the source
	}
	if errors.Is(err, zstd.ErrWindowSizeExceeded) {
		return transfer.Errorf(transfer.WrongFormat, "the zstd stream needs a window of more than %d MiB; pack it with --long=26 at the most, and no --ultra", maxWindow>>20)
	}
	if errors.Is(err, xz.ErrUnsupported) {
		return transfer.Errorf(transfer.WrongFormat, "%w", err)
	}
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return transfer.Errorf(transfer.InvalidImage, "the %s stream ends too early; publish the file anew", format)
	}
	return transfer.Errorf(transfer.InvalidImage, "the %s stream is broken: %w; publish the file anew", format, fmt.Errorf("decoding: %w", err))
}
