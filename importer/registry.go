package importer

import (
	"bufio"
	"context"
	"errors"
	"fmt"

	"sigs.k8s.io/controller-runtime/pkg/log"

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
	j.rest, j.before, j.result.Labels = from.Rest(), from.Before(), from.Labels()
	j.progress.follow(from.Progress)
	disk, err := from.Disk(ctx)
	if err != nil {
		return fmt.Errorf("looking for the disk: %w", err)
	}
	err = errors.Join(j.fromLayer(ctx, disk), disk.Close())
	j.result.Downloaded = from.Progress().Done
	return err
}

// elsewhere begins anew at the places that are left of an image, when err, the end of the import, is the registry's fault.
func (j *job) elsewhere(ctx context.Context, err error) (transfer.Result, error) {
	if !source.Elsewhere(err) || ctx.Err() != nil {
		return transfer.Result{}, err
	}
	err = source.Both(err, j.before)
	if len(j.rest) == 0 {
		return transfer.Result{}, err
	}
	log.FromContext(ctx).Info("Reading the image from another registry", "url", j.rest[0].URL, "because", err.Error())
	from := *j.options.Registry
	from.Places = j.rest
	options := j.options
	options.Registry = &from
	result, failed := Run(ctx, options, j.progress)
	return result, source.Both(failed, err)
}

// fromLayer writes a disk and checks the layer that it came in.
func (j *job) fromLayer(ctx context.Context, disk *source.LayerFile) error {
	err := j.unpack(ctx, bufio.NewReaderSize(disk, streamBuffer), disk.Size)
	if reason := transfer.ReasonOf(err); err != nil && reason != transfer.InvalidImage && reason != transfer.WrongFormat {
		return err
	}
	// An image that cannot be read is perhaps damaged on the way, which is said rather than what it looks like.
	if wrong := disk.Verify(); wrong != nil {
		return fmt.Errorf("checking the disk's layer: %w", wrong)
	}
	return err
}
