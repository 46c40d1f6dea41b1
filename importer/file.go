package importer

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"

	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/slipway-vm/slipway/importer/image"
	"github.com/slipway-vm/slipway/internal/transfer"
)

// file is a file, or a part of one, that can be read at any offset.
type file struct {
	meta io.ReaderAt                      // for one goroutine at a time
	open func(ctx context.Context) reader // for each worker
	size int64
	// inOrder says that the file comes once, from its first byte to its last: its workers keep close together.
	inOrder bool
}

// extent is a stretch of a disk, and done is closed once it is written.
type extent struct {
	begin, end int64
	done       chan struct{}
}

// aheadOf is how many spans for each worker one of a file that comes in order may be ahead of another.
const aheadOf = 4

// handOut gives the spans of the disk in the file to so many workers, until ctx ends. Of
// one that comes in order, a span far ahead of one that is not done waits: what comes for the latter
// would have to leave the window.
func (f file) handOut(ctx context.Context, disk sized, workers int, to chan<- extent) {
	length := int64(span)
	if f.inOrder {
		length = disk.Unit()
	}
	var ahead []chan struct{}
	for off := int64(0); off < disk.size; off += length {
		next := extent{off, min(off+length, disk.size), make(chan struct{})}
		if ahead = append(ahead, next.done); f.inOrder && len(ahead) > aheadOf*workers {
			select {
			case <-ahead[0]:
			case <-ctx.Done():
				return
			}
		}
		ahead = ahead[max(0, len(ahead)-aheadOf*workers):]
		select {
		case to <- next:
		case <-ctx.Done():
			return
		}
	}
}

// section is the part of f that begins at off and has size bytes.
func (f file) section(off, size int64) file {
	return file{
		meta: io.NewSectionReader(f.meta, off, size),
		open: func(ctx context.Context) reader {
			whole := f.open(ctx)
			return part{io.NewSectionReader(whole, off, size), whole}
		},
		size: size,
	}
}

// part reads a part of a file and closes the whole.
type part struct {
	io.ReaderAt
	io.Closer
}

// Expect tells the whole.
func (p part) Expect(bytes int64) {
	if whole, ok := p.Closer.(expectant); ok {
		whole.Expect(bytes)
	}
}

// layers is what was taken off around the disk's file, the outermost first: gz, tar.
type layers []image.Format

// name is the format of a disk within the layers: vmdk+tar+gz.
func (l layers) name(format image.Format) string {
	names := []string{string(format)}
	for _, outer := range slices.Backward(l) {
		names = append(names, string(outer))
	}
	return strings.Join(names, "+")
}

// add takes one more layer off, of each kind at most one.
func (l layers) add(format image.Format) (layers, error) {
	for _, outer := range l {
		if format == image.Tar && outer == image.Tar {
			return nil, transfer.Errorf(transfer.WrongFormat, "the file is a tar archive inside of a tar archive; put the disk into one")
		}
		if format.Compressed() && outer.Compressed() {
			return nil, transfer.Errorf(transfer.WrongFormat, "the file is a %s stream inside of a %s stream; pack it once", format, outer)
		}
	}
	return append(l, format), nil
}

// fromFile writes the disk in a file that can be read at any offset. What is packed in it is
// read as one stream, from the source's first byte.
func (j *job) fromFile(ctx context.Context, f file, outer layers) error {
	head := make([]byte, min(image.HeadSize, f.size))
	if n, err := f.meta.ReadAt(head, 0); n < len(head) {
		return fmt.Errorf("reading the file's beginning: %w", err)
	}
	format, err := image.Detect(head)
	if err != nil {
		return fmt.Errorf("looking at the file: %w", err)
	}
	j.result.Format = outer.name(format)
	log.FromContext(ctx).V(2).Info("Reading at any offset", "format", j.result.Format, "size", f.size)
	switch {
	case format.Compressed():
		return j.fromStream(ctx)
	case format == image.Tar:
		return j.fromArchiveFile(ctx, f, outer)
	case format.Mapped():
		return j.fromMapped(ctx, format, head, f)
	}
	return j.fromRawFile(ctx, f, head)
}

// fromArchiveFile writes the disk in a tar archive.
func (j *job) fromArchiveFile(ctx context.Context, f file, outer layers) error {
	outer, err := outer.add(image.Tar)
	if err != nil {
		return err
	}
	member, err := image.FindDisk(f.meta, f.size)
	if err != nil {
		return fmt.Errorf("looking into the archive: %w", err)
	}
	if !member.Plain {
		return j.fromStream(ctx)
	}
	return j.fromFile(ctx, f.section(member.Offset, member.Size), outer)
}

// fromRawFile writes a raw disk, or a fixed VHD, which is one with a footer.
func (j *job) fromRawFile(ctx context.Context, f file, head []byte) error {
	if image.LooksLikeText(head) && f.size%512 != 0 {
		return image.TextError(head, f.size)
	}
	tail := make([]byte, min(image.VHDFooterSize, f.size))
	if n, err := f.meta.ReadAt(tail, f.size-int64(len(tail))); n < len(tail) {
		return fmt.Errorf("reading the file's end: %w", err)
	}
	size, footed, err := image.FixedVHD(tail, f.size)
	switch {
	case err != nil:
		return fmt.Errorf("reading the file's end: %w", err)
	case footed:
		j.isFixedVHD()
	default:
		size = f.size
	}
	return j.fillRandom(ctx, rawImage(size), f)
}

// isFixedVHD notes that what began as a raw disk ended as a VHD.
func (j *job) isFixedVHD() {
	j.result.Format = string(image.VHD) + strings.TrimPrefix(j.result.Format, string(image.Raw))
}
