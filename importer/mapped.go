package importer

import (
	"context"
	"fmt"

	"github.com/slipway-vm/slipway/importer/image"
)

// fromMapped writes an image whose tables say where in the file its parts are. Head is the
// file's beginning.
func (j *job) fromMapped(ctx context.Context, format image.Format, head []byte, f file) error {
	layout, err := j.parse(format, head, f)
	if err != nil {
		return err
	}
	return j.fromLayout(ctx, layout, f)
}

// parse reads the header of such an image, and refuses one that the volume cannot hold.
func (j *job) parse(format image.Format, head []byte, f file) (image.Layout, error) {
	layout, err := image.Parse(format, head, f.meta, f.size)
	if err != nil {
		return nil, fmt.Errorf("reading the image's header: %w", err)
	}
	if err := j.disk.Check(layout.DiskSize()); err != nil {
		return nil, fmt.Errorf("preparing the volume: %w", err)
	}
	return layout, nil
}

// fromLayout writes an image whose header was read.
func (j *job) fromLayout(ctx context.Context, layout image.Layout, f file) error {
	from, err := layout.Open(f.meta, f.size)
	if err != nil {
		return fmt.Errorf("reading the image's tables: %w", err)
	}
	return j.fillRandom(ctx, sized{from, layout.DiskSize()}, f)
}
