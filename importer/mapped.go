package importer

import (
	"context"
	"fmt"

	"github.com/slipway-vm/slipway/importer/image"
)

// fromMapped writes an image whose tables say where in the file its parts are. Head is the
// file's beginning.
func (j *job) fromMapped(ctx context.Context, format image.Format, head []byte, f file) error {
	layout, err := image.Parse(format, head, f.meta, f.size)
	if err != nil {
		return fmt.Errorf("reading the image's header: %w", err)
	}
	if err := j.disk.Check(layout.DiskSize()); err != nil {
		return fmt.Errorf("preparing the volume: %w", err)
	}
	from, err := layout.Open(f.meta, f.size)
	if err != nil {
		return fmt.Errorf("reading the image's tables: %w", err)
	}
	return j.fillRandom(ctx, sized{from, layout.DiskSize()}, f.open)
}
