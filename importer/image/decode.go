package image

import (
	"bufio"
	"compress/bzip2"
	"errors"
	"fmt"
	"io"

	"github.com/klauspost/compress/zstd"

	"github.com/slipway-vm/slipway/importer/image/deflate"
	"github.com/slipway-vm/slipway/importer/image/xz"
	"github.com/slipway-vm/slipway/internal/transfer"
)

// maxWindow bounds the memory of a decoder, and so the importer's.
const maxWindow = 64 << 20

// Decode returns the content of a compressed stream.
func Decode(format Format, r *bufio.Reader) (io.ReadCloser, error) {
	switch format {
	case Gzip:
		return &decoder{Reader: deflate.NewGzip(r), format: format}, nil
	case XZ:
		reader := xz.NewReader(r, maxWindow)
		return &decoder{Reader: reader, format: format, close: reader.Close}, nil
	case Bzip2:
		return &decoder{Reader: bzip2.NewReader(r), format: format}, nil
	case Zstd:
		reader, err := zstd.NewReader(r, zstd.WithDecoderMaxWindow(maxWindow), zstd.WithDecoderConcurrency(2))
		if err != nil {
			return nil, broken(format, err)
		}
		return &decoder{Reader: reader, format: format, close: reader.Close}, nil
	}
	return nil, transfer.Errorf(transfer.Internal, "no decoder for %s", format)
}

// decoder gives a library's errors a reason.
type decoder struct {
	io.Reader
	format Format
	close  func() // nil for one that has nothing to end
}

func (d *decoder) Read(p []byte) (int, error) {
	n, err := d.Reader.Read(p)
	if err != nil && err != io.EOF { //nolint:errorlint // only io.EOF itself is the content's end
		err = broken(d.format, err)
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
