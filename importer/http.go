package importer

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/slipway-vm/slipway/importer/image"
	"github.com/slipway-vm/slipway/importer/source"
	"github.com/slipway-vm/slipway/internal/transfer"
)

// fromHTTP reads the file with read, and follows how far that is.
func (j *job) fromHTTP(ctx context.Context, read func(context.Context) error) (err error) {
	if j.http, err = source.Open(ctx, *j.options.Source); err != nil {
		return fmt.Errorf("opening the source: %w", err)
	}
	j.progress.follow(func() transfer.Progress {
		return transfer.Progress{Done: j.http.Downloaded(), Total: max(j.http.Size(), 0)}
	})
	err = read(ctx)
	j.result.Downloaded = j.http.Downloaded()
	return err
}

// read chooses how the image is read. At any offset, by several connections, when its server
// can and no checksum asks for the bytes in order; otherwise as one stream.
func (j *job) read(ctx context.Context) error {
	if !j.http.Ranged() || j.checksum != nil {
		return j.fromStream(ctx)
	}
	meta := j.http.Cursor(ctx)
	defer meta.Close()
	head := make([]byte, min(image.HeadSize, j.http.Size()))
	if n, err := meta.ReadAt(head, 0); n < len(head) {
		return fmt.Errorf("reading the file's beginning: %w", err)
	}
	format, err := image.Detect(head)
	if err != nil {
		return fmt.Errorf("looking at the file: %w", err)
	}
	open := func(ctx context.Context) reader { return j.http.Cursor(ctx) }
	switch {
	case format.Compressed():
		return j.fromStream(ctx)
	case format == image.QCOW2:
		j.result.Format = string(format)
		return j.fromQCOW2(ctx, head, meta, open, j.http.Size())
	}
	j.result.Format = string(format)
	if size := j.http.Size(); image.LooksLikeText(head) && size%512 != 0 {
		return image.TextError(head, size)
	}
	return j.fillRandom(ctx, rawImage(j.http.Size()), open)
}

// fromStream reads the image once, from its first byte to its last.
func (j *job) fromStream(ctx context.Context) error {
	return j.stream(ctx, func(stream *bufio.Reader) error { return j.unpack(ctx, stream, j.http.Size()) })
}

// stream has the file read in order, and compares its checksum.
func (j *job) stream(ctx context.Context, read func(*bufio.Reader) error) error {
	stream, err := j.http.Stream(ctx)
	if err != nil {
		return fmt.Errorf("opening the source: %w", err)
	}
	if j.checksum != nil {
		stream = hashing(stream, j.checksum)
	}
	err = read(bufio.NewReaderSize(stream, 256<<10))
	if sum, ok := stream.(*hashed); ok && err == nil {
		err = sum.finish()
	}
	return errors.Join(err, stream.Close())
}

// unpack takes the compression off, once, and reads what is inside.
func (j *job) unpack(ctx context.Context, stream *bufio.Reader, size int64) error {
	format, head, err := detect(stream)
	if err != nil {
		return err
	}
	if format.Compressed() {
		content, err := image.Decode(format, stream)
		if err != nil {
			return fmt.Errorf("unpacking the file: %w", err)
		}
		defer content.Close()
		outer := format
		stream, size = bufio.NewReaderSize(content, 256<<10), -1
		if format, head, err = detect(stream); err != nil {
			return err
		}
		if format.Compressed() {
			return transfer.Errorf(transfer.WrongFormat, "the file is a %s stream inside of a %s stream; pack it once", format, outer)
		}
		j.result.Format = string(format) + "+" + string(outer)
	} else {
		j.result.Format = string(format)
	}
	if format == image.QCOW2 {
		return j.spoolQCOW2(ctx, stream, head, size)
	}
	return j.fillStream(ctx, stream, head, size)
}

func detect(stream *bufio.Reader) (image.Format, []byte, error) {
	head, err := stream.Peek(image.HeadSize)
	if err != nil && err != io.EOF { //nolint:errorlint // only io.EOF itself is the file's end
		return "", nil, fmt.Errorf("reading the file's beginning: %w", err)
	}
	if len(head) == 0 {
		return "", nil, transfer.Errorf(transfer.WrongFormat, "the file is empty; check the URL")
	}
	format, err := image.Detect(head)
	if err != nil {
		return "", nil, fmt.Errorf("looking at the file: %w", err)
	}
	return format, append([]byte(nil), head...), nil
}
