package oci

import (
	"archive/tar"
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"

	"github.com/klauspost/compress/gzip"
)

// Unpack lays out in the folder root what a container of the image sees, owners included, so root must run it. The archive is one of
// WriteArchive, whose layers stand in their order. No layer of ours removes files of a lower one.
func Unpack(ctx context.Context, archive, root string) error {
	f, err := os.Open(archive)
	if err != nil {
		return fmt.Errorf("opening an image's archive: %w", err)
	}
	defer f.Close()
	for entries := tar.NewReader(f); ; {
		header, err := entries.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("reading %s: %w", archive, err)
		}
		content := bufio.NewReader(entries)
		if magic, err := content.Peek(2); err != nil || !bytes.Equal(magic, []byte{0x1f, 0x8b}) {
			continue // the descriptions
		}
		if err := extractPacked(ctx, content, root); err != nil {
			return fmt.Errorf("unpacking %s of %s: %w", header.Name, archive, err)
		}
	}
}

// Unpack lays out the layer in the folder root; root must run it.
func (l Layer) Unpack(ctx context.Context, root string) error {
	f, err := os.Open(l.File)
	if err != nil {
		return fmt.Errorf("opening a layer: %w", err)
	}
	defer f.Close()
	if err := extractPacked(ctx, f, root); err != nil {
		return fmt.Errorf("unpacking layer %s: %w", l.File, err)
	}
	return nil
}

func extractPacked(ctx context.Context, packed io.Reader, root string) error {
	stream, err := gzip.NewReader(packed)
	if err != nil {
		return fmt.Errorf("decompressing: %w", err)
	}
	cmd := exec.CommandContext(ctx, "tar", "--extract", "--same-owner", "--numeric-owner", "--same-permissions",
		"--xattrs", "--xattrs-include=security.capability", "--directory", root)
	var out bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = stream, &out, &out
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("tar: %w\n%s", err, out.String())
	}
	return nil
}
