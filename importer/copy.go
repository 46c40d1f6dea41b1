package importer

import (
	"context"
	"errors"
	"io"
	"sync/atomic"

	"github.com/slipway-vm/slipway/importer/image"
	"github.com/slipway-vm/slipway/importer/source"
	"github.com/slipway-vm/slipway/internal/transfer"
)

// copied is the disk of another volume. What its file system has nothing of is not read.
type copied struct {
	*source.Volume

	passed, read *atomic.Int64 // bytes of the disk that were looked at, and that were read
}

// Unit is how much of it is read at a time.
func (copied) Unit() int64 { return image.MinUnit }

// Read fills p from off, as an image's disk does.
func (c copied) Read(r io.ReaderAt, p []byte, off int64) (bool, error) {
	defer c.passed.Add(int64(len(p)))
	if c.Hole(off, int64(len(p))) {
		return false, nil
	}
	n, err := r.ReadAt(p, off)
	c.read.Add(int64(n))
	return true, err //nolint:wrapcheck // the volume says what and where
}

// fromVolume copies the disk of another volume, byte for byte. Its format is raw, whatever its bytes look like.
func (j *job) fromVolume(ctx context.Context) (err error) {
	from, err := source.OpenVolume(j.options.CopyFrom)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, from.Close()) }()
	j.result.Format = string(image.Raw)
	disk := copied{from, new(atomic.Int64), new(atomic.Int64)}
	j.progress.follow(func() transfer.Progress {
		return transfer.Progress{Done: disk.passed.Load(), Total: from.Size()}
	})
	open := func(context.Context) reader { return part{from, io.NopCloser(nil)} }
	err = j.fillRandom(ctx, sized{disk, from.Size()}, file{meta: from, open: open, size: from.Size()})
	j.result.Downloaded = disk.read.Load()
	if err != nil {
		return err
	}
	return from.Unchanged() //nolint:wrapcheck // the volume says what
}

// copies reports whether o copies another volume's disk, which has no format and no server.
func (o PodOptions) copies() (bool, error) {
	if o.CopyFrom != "" && (o.URL != "" || o.Archive || o.Checksum != "") {
		return true, transfer.Errorf(transfer.BadRequest, "the disk at %s is copied as it is; give no URL, no checksum and no archive", o.CopyFrom)
	}
	return o.CopyFrom != "", nil
}
