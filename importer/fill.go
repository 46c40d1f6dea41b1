package importer

import (
	"bufio"
	"context"
	"fmt"
	"io"

	"golang.org/x/sync/errgroup"

	"github.com/slipway-vm/slipway/importer/image"
	"github.com/slipway-vm/slipway/importer/target"
	"github.com/slipway-vm/slipway/internal/digest"
	"github.com/slipway-vm/slipway/internal/transfer"
)

// A disk is read, hashed and written in units; a span is a row of units that one worker takes, so that it
// reads its source in order.
const (
	span = 8 * image.MaxCluster
	// streamUnit is the unit of a stream.
	streamUnit = digest.BlockSize
	// grainBuffer is for a VMDK in order, which is read in small pieces.
	grainBuffer = 256 << 10
)

// reader reads a file at any offset, for one goroutine.
type reader interface {
	io.ReaderAt
	io.Closer
}

// expectant is a reader that asks its source for more than what is read now.
type expectant interface {
	// Expect says that no more than so many bytes are read in a row.
	Expect(bytes int64)
}

// measured is a disk that knows how many bytes of its file a stretch of it takes.
type measured interface {
	Taken(off, end int64) (bytes int64, err error)
}

// plainDisk is a raw image: the file is the disk.
type plainDisk struct{}

func (plainDisk) Unit() int64 { return image.MinUnit }

func (plainDisk) Read(r io.ReaderAt, p []byte, off int64) (bool, error) {
	if n, err := r.ReadAt(p, off); n < len(p) {
		return false, fmt.Errorf("reading the file at %d: %w", off, err)
	}
	return true, nil
}

// sized is a disk with its size.
type sized struct {
	image.Disk
	size int64
}

func rawImage(size int64) sized { return sized{plainDisk{}, size} }

// announce tells a reader that asks ahead how much a span needs.
func (s sized) announce(r reader, span extent) (err error) {
	to, ok := r.(expectant)
	if !ok {
		return nil
	}
	bytes := span.end - span.begin
	if table, ok := s.Disk.(measured); ok {
		if bytes, err = table.Taken(span.begin, span.end); err != nil {
			return fmt.Errorf("looking up the disk at %d: %w", span.begin, err)
		}
	}
	to.Expect(bytes)
	return nil
}

// fillRandom writes an image that can be read at any offset, several spans at a time.
func (j *job) fillRandom(ctx context.Context, from sized, f file) error {
	j.result.VirtualSize = from.size
	if err := j.disk.Begin(from.size); err != nil {
		return fmt.Errorf("preparing the volume: %w", err)
	}
	buffers, free := target.Buffers(j.options.Writers, int(from.Unit()))
	defer free()
	group, ctx := errgroup.WithContext(ctx)
	spans := make(chan extent)
	group.Go(func() error {
		defer close(spans)
		f.handOut(ctx, from, j.options.Writers, spans)
		return nil
	})
	for _, buffer := range buffers {
		group.Go(func() error {
			r := f.open(ctx)
			defer r.Close()
			for span := range spans {
				if err := j.fillSpan(ctx, from, r, buffer, span); err != nil {
					return err
				}
				close(span.done)
			}
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		return fmt.Errorf("filling the disk: %w", err)
	}
	return j.clear(roundUp(from.size, from.Unit()), j.disk.Size())
}

// fillSpan reads and writes the units of one span, and clears those that hold nothing.
func (j *job) fillSpan(ctx context.Context, from sized, r reader, buffer []byte, span extent) error {
	if err := from.announce(r, span); err != nil {
		return err
	}
	unit := from.Unit()
	for off := span.begin; off < span.end; off += unit {
		if err := ctx.Err(); err != nil {
			return fmt.Errorf("stopping: %w", err)
		}
		data := buffer[:min(unit, from.size-off)]
		allocated, err := from.Read(r, data, off)
		if err != nil {
			return err //nolint:wrapcheck // the image says what and where
		}
		if !allocated {
			err = j.clear(off, min(off+unit, j.disk.Size()))
		} else {
			err = j.write(buffer, len(data), off)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// write hashes and writes a unit of n bytes that fills buffer; what lies behind them becomes zero.
func (j *job) write(buffer []byte, n int, off int64) error {
	clear(buffer[n:])
	for at := 0; at < n; at += digest.BlockSize {
		j.tree.Put((off+int64(at))/digest.BlockSize, buffer[at:at+digest.BlockSize])
	}
	// The tail of a disk that is no multiple of the alignment is written with its padding where there is room.
	length := min(roundUp(int64(n), target.Alignment), j.disk.Size()-off)
	if j.disk.Size() == 0 { // a stream of unknown length
		length = roundUp(int64(n), target.Alignment)
	}
	if err := j.disk.Write(buffer[:length], off); err != nil {
		return fmt.Errorf("writing the disk: %w", err)
	}
	return j.clear(off+length, min(off+int64(len(buffer)), j.disk.Size()))
}

// clear makes the bytes from off to end zero.
func (j *job) clear(off, end int64) error {
	if err := j.disk.Zero(off, end-off); err != nil {
		return fmt.Errorf("clearing the disk: %w", err)
	}
	return nil
}

// fillStream writes a raw image that comes in order. Its size is -1 when only its end will tell.
func (j *job) fillStream(ctx context.Context, stream *bufio.Reader, head []byte, size int64) error {
	text := image.LooksLikeText(head)
	if size >= 0 && text && size%512 != 0 {
		return image.TextError(head, size)
	}
	if err := j.disk.Begin(j.streamSize(size)); err != nil {
		return fmt.Errorf("preparing the volume: %w", err)
	}
	content := image.NewUnfooted(stream)
	total, err := j.copyStream(ctx, content)
	if err != nil {
		return err
	}
	came := total
	if content.Footed() {
		came += image.VHDFooterSize
		j.isFixedVHD()
	}
	if size >= 0 && came != size {
		return transfer.Errorf(transfer.ConnectionLost, "the file ended after %d of its %d bytes; the import begins anew", came, size)
	}
	if text && total%512 != 0 {
		return image.TextError(head, total)
	}
	return j.endStream(total)
}

// streamSize is the size to begin a raw stream of size bytes with. One that the volume cannot
// hold but for its last sector may be a fixed VHD, which has a footer there.
func (j *job) streamSize(size int64) int64 {
	if j.disk.Check(size) != nil && j.disk.Check(size-image.VHDFooterSize) == nil {
		size -= image.VHDFooterSize
	}
	return max(size, 0)
}

// fromOrdered writes a VMDK whose grains come in order.
func (j *job) fromOrdered(ctx context.Context, stream *bufio.Reader) error {
	from, err := image.NewOrdered(bufio.NewReaderSize(stream, grainBuffer))
	if err != nil {
		return fmt.Errorf("reading the image's header: %w", err)
	}
	if err := j.disk.Begin(from.DiskSize()); err != nil {
		return fmt.Errorf("preparing the volume: %w", err)
	}
	total, err := j.copyStream(ctx, from)
	if err != nil {
		return err
	}
	return j.endStream(total)
}

// endStream makes the rest of the disk zero once total bytes are there.
func (j *job) endStream(total int64) error {
	j.result.VirtualSize = total
	if err := j.disk.Grow(total); err != nil {
		return fmt.Errorf("finishing the disk: %w", err)
	}
	return j.clear(roundUp(total, streamUnit), j.disk.Size())
}

// filled is a unit on its way to the writers.
type filled struct {
	buffer []byte
	n      int
	off    int64
}

// copyStream reads units in order and lets the writers hash and write them. It returns how many bytes came.
func (j *job) copyStream(ctx context.Context, stream io.Reader) (total int64, err error) {
	buffers, giveBack := target.Buffers(j.options.Writers+1, streamUnit) // one for each writer, one that is being read
	defer giveBack()
	group, ctx := errgroup.WithContext(ctx)
	work := make(chan filled)
	free := make(chan []byte, len(buffers))
	for _, buffer := range buffers {
		free <- buffer
	}
	group.Go(func() error {
		defer close(work)
		var err error
		total, err = j.readUnits(ctx, stream, free, work)
		return err
	})
	for range j.options.Writers {
		group.Go(func() error {
			for f := range work {
				if err := j.write(f.buffer, f.n, f.off); err != nil {
					return err
				}
				free <- f.buffer
			}
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		return 0, fmt.Errorf("filling the disk: %w", err)
	}
	return total, nil
}

func (j *job) readUnits(ctx context.Context, stream io.Reader, free chan []byte, work chan filled) (total int64, err error) {
	for {
		var buffer []byte
		select {
		case buffer = <-free:
		case <-ctx.Done():
			return total, fmt.Errorf("stopping: %w", ctx.Err())
		}
		n, end, err := fillUnit(stream, buffer)
		if err != nil {
			return total, fmt.Errorf("reading the file: %w", err)
		}
		if n > 0 {
			if err := j.disk.Check(total + int64(n)); err != nil {
				return total, tooLong(err)
			}
			select {
			case work <- filled{buffer, n, total}:
			case <-ctx.Done():
				return total, fmt.Errorf("stopping: %w", ctx.Err())
			}
			total += int64(n)
		}
		if end {
			return total, nil
		}
	}
}

// fillUnit reads until buffer is full or the stream ends. Only io.EOF itself is an end: an
// error that has it in its chain is a broken connection.
func fillUnit(stream io.Reader, buffer []byte) (n int, end bool, err error) {
	for n < len(buffer) {
		got, err := stream.Read(buffer[n:])
		n += got
		if err == io.EOF { //nolint:errorlint // see above
			return n, true, nil
		}
		if err != nil {
			return n, false, err //nolint:wrapcheck // the caller says what it was reading
		}
	}
	return n, false, nil
}

// tooLong says of a stream whose size nobody gave that it does not fit.
func tooLong(err error) error {
	return transfer.Errorf(transfer.TooSmall, "the unpacked image is larger than the volume: at the least %w", err)
}

func roundUp(n, unit int64) int64 { return (n + unit - 1) / unit * unit }
