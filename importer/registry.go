package importer

import (
	"bufio"
	"context"
	"errors"
	"fmt"

	"github.com/slipway-vm/slipway/importer/source"
	"github.com/slipway-vm/slipway/internal/transfer"
)

// fromRegistry writes the disk of a container image, while its layer is downloaded.
func (j *job) fromRegistry(ctx context.Context) (err error) {
	options := *j.options.Registry
	options.CertScratch = certPath(j.options)
	from, err := source.OpenRegistry(ctx, options)
	if err != nil {
		return fmt.Errorf("opening the image: %w", err)
	}
	defer func() { err = errors.Join(err, from.Close()) }()
	j.result.Labels = from.Labels()
	j.progress.follow(from.Progress)
	disk, err := from.Disk(ctx)
	if err != nil {
		return fmt.Errorf("looking for the disk: %w", err)
	}
	err = errors.Join(j.fromLayer(ctx, disk), disk.Close())
	j.result.Downloaded = from.Progress().Done
	return err
}

// fromLayer writes a disk and checks the layer that it came in.
func (j *job) fromLayer(ctx context.Context, disk *source.LayerFile) error {
	err := j.unpack(ctx, bufio.NewReaderSize(disk, 256<<10), disk.Size)
	if reason := transfer.ReasonOf(err); err != nil && reason != transfer.InvalidImage && reason != transfer.WrongFormat {
		return err
	}
	// An image that cannot be read is perhaps damaged on the way, which is said rather than what it looks like.
	if wrong := disk.Verify(); wrong != nil {
		return fmt.Errorf("checking the disk's layer: %w", wrong)
	}
	return err
}
