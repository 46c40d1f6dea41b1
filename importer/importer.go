// Package importer fills a disk, or a directory, from a source in one pass: read, unpacked, hashed and
// written at the same time, in bounded memory, straight onto the volume.
package importer

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/slipway-vm/slipway/importer/source"
	"github.com/slipway-vm/slipway/importer/target"
	"github.com/slipway-vm/slipway/internal/digest"
	"github.com/slipway-vm/slipway/internal/transfer"
)

// Options describe one import.
type Options struct {
	// Source is the file on a web server, Registry the image, Pulled the image that the node has pulled,
	// Stream the file that is sent; without any of them, and CopyFrom, the disk is blank.
	Source   *source.Options
	Registry *source.RegistryOptions
	Pulled   *source.PulledOptions
	Stream   *Stream
	// CopyFrom is the block device, or the folder of the disk.img, whose disk is copied as it is.
	CopyFrom string
	// Checksum is "algorithm:hex" of the file as it is published; empty checks nothing.
	Checksum string
	// Archive says that the file is an archive of files, which Target.Path, a directory, takes.
	Archive bool
	// Target is the volume.
	Target target.Options
	// ScratchDir takes what cannot be read in order, when the target is a device.
	ScratchDir string
	// Writers is how many blocks are hashed and written at a time. Default 4.
	Writers int
}

// job is one import under way.
type job struct {
	options  Options
	rest     []source.Place // where a registry's image is looked for next
	before   error          // why it was not read from the places before
	disk     *target.Disk
	tree     *digest.Tree
	from     published // what Source or Pulled names
	checksum *checksum
	progress *Progress
	result   transfer.Result
}

// Run makes the disk and returns what it made. On an error the volume holds no disk. The
// progress is kept up to date; it may be nil.
func Run(ctx context.Context, options Options, progress *Progress) (transfer.Result, error) {
	start := time.Now()
	if options.Writers <= 0 {
		options.Writers = 4
	}
	if progress == nil {
		progress = NewProgress()
	}
	j := &job{options: options, tree: digest.New(), progress: progress}
	defer removeScratch(options)
	err := j.run(ctx)
	if err != nil {
		if j.disk != nil {
			err = errors.Join(err, j.disk.Abort())
		}
		return j.elsewhere(ctx, err)
	}
	if !options.Archive {
		j.result.Digest = j.tree.Sum(j.result.DiskSize)
	}
	j.result.Milliseconds = time.Since(start).Milliseconds()
	progress.finish()
	return j.result, nil
}

func (j *job) run(ctx context.Context) (err error) {
	if j.checksum, err = newChecksum(j.options.Checksum); err != nil {
		return err
	}
	if j.options.Archive {
		return j.fillDirectory(ctx)
	}
	if j.disk, err = target.Open(j.options.Target); err != nil {
		return fmt.Errorf("opening the volume: %w", err)
	}
	switch {
	case j.options.Stream != nil:
		err = j.fromSender(ctx, func(stream *bufio.Reader) error { return j.unpack(ctx, stream, j.options.Stream.Size) })
	case j.options.Registry != nil:
		err = j.fromRegistry(ctx)
	case j.options.Pulled != nil:
		err = j.fromPulled(ctx)
	case j.options.Source != nil:
		err = j.fromHTTP(ctx, j.read)
	case j.options.CopyFrom != "":
		err = j.fromVolume(ctx)
	default:
		err = j.blank()
	}
	if err != nil {
		return err
	}
	if err := j.disk.Commit(ctx); err != nil {
		return fmt.Errorf("finishing the disk: %w", err)
	}
	j.result.DiskSize = j.disk.Size()
	j.result.Written = j.disk.Written()
	return nil
}

// blank makes a disk of zeros.
func (j *job) blank() error {
	j.result.Format = "blank"
	j.result.VirtualSize = j.disk.Capacity()
	if err := j.disk.Begin(j.result.VirtualSize); err != nil {
		return fmt.Errorf("making a blank disk: %w", err)
	}
	return j.clear(0, j.disk.Size())
}

// scratchPath is the file for what cannot be read in order: beside a disk's file, so that it
// is on the same storage, or in ScratchDir for a device.
func scratchPath(options Options) string {
	if options.ScratchDir != "" {
		return filepath.Join(options.ScratchDir, "import.scratch")
	}
	return options.Target.Path + ".scratch"
}

// removeScratch leaves no scratch behind, not even that of an earlier attempt.
func removeScratch(options Options) {
	if options.Archive {
		return // the volume is the archive's
	}
	_ = os.Remove(scratchPath(options)) // most imports have none
	_ = os.RemoveAll(certPath(options)) // likewise
}

// certPath is the folder for certificates, while a registry's image is opened.
func certPath(options Options) string { return scratchPath(options) + ".certs" }
