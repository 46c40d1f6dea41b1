package importer

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/slipway-vm/slipway/importer/source"
	"github.com/slipway-vm/slipway/internal/transfer"
)

// fromPulled writes the disk of a container image that the node has pulled: a file, which is read at any offset.
func (j *job) fromPulled(ctx context.Context) (err error) {
	from, err := source.OpenPulled(*j.options.Pulled)
	if err != nil {
		return fmt.Errorf("opening the image: %w", err)
	}
	defer func() { err = errors.Join(err, from.Close()) }()
	j.from, j.result.Labels = from, from.Labels()
	j.progress.follow(func() transfer.Progress {
		return transfer.Progress{Done: from.Downloaded(), Total: from.Size()}
	})
	err = j.fromFile(ctx, file{meta: from, open: func(context.Context) reader { return shared{from} }, size: from.Size()}, nil)
	j.result.Downloaded = from.Downloaded()
	return err
}

// shared is a file that many read, and one of them does not close.
type shared struct{ io.ReaderAt }

// Close does nothing.
func (shared) Close() error { return nil }
