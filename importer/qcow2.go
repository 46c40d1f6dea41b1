package importer

import (
	"context"
	"fmt"
	"io"

	"github.com/slipway-vm/slipway/importer/image"
)

// fromQCOW2 writes a qcow2 image of fileSize bytes that can be read at any offset.
func (j *job) fromQCOW2(ctx context.Context, head []byte, meta io.ReaderAt, open func(context.Context) reader, fileSize int64) error {
	header, err := image.ParseQCOW2(head)
	if err != nil {
		return fmt.Errorf("reading the image's header: %w", err)
	}
	if err := j.disk.Check(header.Size); err != nil {
		return fmt.Errorf("preparing the volume: %w", err)
	}
	from, err := image.OpenQCOW2(header, meta, fileSize)
	if err != nil {
		return fmt.Errorf("reading the image's tables: %w", err)
	}
	return j.fillRandom(ctx, sized{from, header.Size}, open)
}
