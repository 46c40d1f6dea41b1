package importer

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"

	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/slipway-vm/slipway/importer/image"
	"github.com/slipway-vm/slipway/importer/source"
	"github.com/slipway-vm/slipway/internal/transfer"
)

// streamBuffer is the buffer of a stream in bytes: no more than is looked at before it is known what the stream is, so
// that large reads come past it.
const streamBuffer = image.HeadSize

// published is a file that can be read from its first byte to its last as often as that is asked for.
type published interface {
	// Size is the file's size in bytes, or -1 when nobody says it.
	Size() int64
	Stream(ctx context.Context) (io.ReadCloser, error)
}

// fromHTTP reads the file with read, and follows how far that is.
func (j *job) fromHTTP(ctx context.Context, read func(context.Context, *source.HTTP) error) error {
	from, err := source.Open(ctx, *j.options.Source)
	if err != nil {
		return fmt.Errorf("opening the source: %w", err)
	}
	log.FromContext(ctx).V(2).Info("Found the file", "size", from.Size(), "ranges", from.Ranged(), "version", from.Version())
	j.from = from
	j.progress.follow(func() transfer.Progress {
		return transfer.Progress{Done: from.Downloaded(), Total: max(from.Size(), 0)}
	})
	err = read(ctx, from)
	j.result.Downloaded = from.Downloaded()
	return err
}

// read chooses how the image is read. At any offset, by several connections, when its server
// can and no checksum asks for the bytes in order; otherwise as one stream.
func (j *job) read(ctx context.Context, from *source.HTTP) error {
	if !from.Ranged() || j.checksum != nil {
		return j.fromStream(ctx)
	}
	meta := from.Cursor(ctx)
	defer meta.Close()
	open := func(ctx context.Context) reader { return from.Cursor(ctx) }
	return j.fromFile(ctx, file{meta: meta, open: open, size: from.Size()}, nil)
}

// fromStream reads the image once, from its first byte to its last.
func (j *job) fromStream(ctx context.Context) error {
	return j.stream(ctx, func(stream *bufio.Reader) error { return j.unpack(ctx, stream, j.from.Size()) })
}

// stream has the file read in order, and compares its checksum.
func (j *job) stream(ctx context.Context, read func(*bufio.Reader) error) error {
	stream, err := j.from.Stream(ctx)
	if err != nil {
		return fmt.Errorf("opening the source: %w", err)
	}
	if j.checksum != nil {
		stream = hashing(stream, j.checksum)
	}
	err = read(bufio.NewReaderSize(stream, streamBuffer))
	if sum, ok := stream.(*hashed); ok && err == nil {
		err = sum.finish(j.from.Size() >= 0)
	}
	return errors.Join(err, stream.Close())
}

// unpack takes compression and archive off and reads what is inside of them.
func (j *job) unpack(ctx context.Context, stream *bufio.Reader, size int64) error {
	return j.unwrap(ctx, stream, size, nil)
}

// unwrap reads a stream of size bytes, -1 when that is not known, from which outer was taken off.
func (j *job) unwrap(ctx context.Context, stream *bufio.Reader, size int64, outer layers) error {
	format, head, err := detect(stream)
	if err != nil {
		return err
	}
	j.result.Format = outer.name(format)
	log.FromContext(ctx).V(2).Info("Reading in order", "format", j.result.Format, "size", size)
	if format.Compressed() || format == image.Tar {
		if outer, err = outer.add(format); err != nil {
			return err
		}
	}
	switch {
	case format.Compressed():
		content, err := image.Decode(format, stream)
		if err != nil {
			return fmt.Errorf("unpacking the file: %w", err)
		}
		defer content.Close()
		return j.unwrap(ctx, bufio.NewReaderSize(content, streamBuffer), -1, outer)
	case format == image.Tar:
		return j.fromArchive(ctx, stream, outer)
	case format == image.VMDK && image.InOrder(head):
		return j.fromOrdered(ctx, stream)
	case format.Mapped():
		return j.spool(ctx, format, stream, head, size)
	}
	return j.fillStream(ctx, stream, head, size)
}

// fromArchive writes the one disk in a tar archive that comes in order. What else is in it is read to no end.
func (j *job) fromArchive(ctx context.Context, stream io.Reader, outer layers) error {
	archive := image.NewArchive(atMost(stream, transfer.Scratch(j.disk.Capacity()),
		"the tar archive has more than %d bytes, over twice what the volume takes; put the disk alone into it, or ask for a larger volume"))
	content, size, _, err := archive.Disk()
	if err != nil {
		return fmt.Errorf("looking into the archive: %w", err)
	}
	if err := j.unwrap(ctx, bufio.NewReaderSize(content, streamBuffer), size, outer); err != nil {
		return err
	}
	if err := archive.Finish(); err != nil {
		return fmt.Errorf("looking into the archive: %w", err)
	}
	return nil
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
