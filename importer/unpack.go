package importer

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/slipway-vm/slipway/importer/archive"
	"github.com/slipway-vm/slipway/importer/image"
	"github.com/slipway-vm/slipway/importer/source"
	"github.com/slipway-vm/slipway/importer/target"
	"github.com/slipway-vm/slipway/internal/transfer"
)

// fillDirectory unpacks a tar archive into the volume's directory.
func (j *job) fillDirectory(ctx context.Context) error {
	if j.options.Source == nil && j.options.Stream == nil {
		return transfer.Errorf(transfer.BadRequest, "an archive needs a URL to come from, or somebody who sends it")
	}
	tree, err := archive.Begin(j.options.Target.Path)
	if err != nil {
		return fmt.Errorf("opening the volume: %w", err)
	}
	err = j.fillTree(ctx, tree)
	if err == nil {
		err = tree.Commit(ctx)
	}
	if err != nil {
		return errors.Join(fmt.Errorf("unpacking the archive: %w", err), tree.Abort())
	}
	j.result.VirtualSize, j.result.Written = tree.Size(), tree.Written()
	return nil
}

func (j *job) fillTree(ctx context.Context, tree *archive.Tree) error {
	// The volume has the room that it would have for a disk.
	room, err := target.Room(j.options.Target.Path, j.options.Target.Size)
	if err != nil {
		return fmt.Errorf("opening the volume: %w", err)
	}
	if j.options.Stream != nil {
		return j.fromSender(ctx, func(stream *bufio.Reader) error { return j.unpackTree(ctx, stream, tree, room) })
	}
	return j.fromHTTP(ctx, func(ctx context.Context, _ *source.HTTP) error {
		return j.stream(ctx, func(stream *bufio.Reader) error { return j.unpackTree(ctx, stream, tree, room) })
	})
}

// unpackTree takes the compression off, once, and unpacks what is inside.
func (j *job) unpackTree(ctx context.Context, stream *bufio.Reader, tree *archive.Tree, room int64) error {
	head, err := stream.Peek(image.HeadSize)
	if err != nil && err != io.EOF { //nolint:errorlint // only io.EOF itself is the file's end
		return fmt.Errorf("reading the file's beginning: %w", err)
	}
	var content io.Reader = stream
	j.result.Format = "tar"
	if packing := image.Packing(head); packing != "" {
		unpacked, err := image.Decode(packing, stream)
		if err != nil {
			return fmt.Errorf("unpacking the file: %w", err)
		}
		defer unpacked.Close()
		content = unpacked
		j.result.Format += "+" + string(packing)
	}
	content = &interrupted{content, ctx.Err}
	whole := atMost(content, transfer.Scratch(room), "the archive has more than %d bytes, over twice what the volume takes; make it anew without what is no file, or ask for a larger volume")
	if err := tree.Add(ctx, whole, room); err != nil {
		return err //nolint:wrapcheck // it says what and where
	}
	// Behind the archive's end comes what proves that it is whole.
	rest := atMost(content, maxTrailer, "behind its end the archive has more than %d bytes; make it anew without them")
	if _, err := io.Copy(io.Discard, rest); err != nil {
		return fmt.Errorf("reading the file to its end: %w", err)
	}
	return nil
}
