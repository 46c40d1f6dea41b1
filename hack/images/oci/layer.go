// Package oci writes layers and single-image OCI archives, always the same bytes for the same content.
package oci

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"io"
	"os"

	"github.com/klauspost/compress/gzip"
)

// Layer is a compressed layer in a file.
type Layer struct {
	// File holds the gzip-compressed tar.
	File string `json:"-"`
	// Digest and Size are those of the file.
	Digest string `json:"digest"`
	Size   int64  `json:"size"`
	// DiffID and Unpacked are digest and size of the tar within.
	DiffID   string `json:"diffID"`
	Unpacked int64  `json:"unpacked"`
}

type countingHash struct {
	hash.Hash
	n int64
}

func newCountingHash() *countingHash { return &countingHash{Hash: sha256.New()} }

func (c *countingHash) Write(p []byte) (int, error) {
	c.n += int64(len(p))
	return c.Hash.Write(p)
}

func (c *countingHash) digest() string { return "sha256:" + hex.EncodeToString(c.Sum(nil)) }

// WriteLayer compresses what write produces into file and a description of it into file.json; the layer exists only when both do.
func WriteLayer(file string, write func(io.Writer) error) (Layer, error) {
	temp, err := os.Create(file + ".part")
	if err != nil {
		return Layer{}, fmt.Errorf("making a layer: %w", err)
	}
	defer os.Remove(temp.Name())
	packed, unpacked := newCountingHash(), newCountingHash()
	zip, err := gzip.NewWriterLevel(io.MultiWriter(temp, packed), gzip.DefaultCompression)
	if err != nil {
		return Layer{}, errors.Join(fmt.Errorf("compressing a layer: %w", err), temp.Close())
	}
	err = errors.Join(write(io.MultiWriter(zip, unpacked)), zip.Close(), temp.Close())
	if err != nil {
		return Layer{}, fmt.Errorf("writing layer %s: %w", file, err)
	}
	layer := Layer{File: file, Digest: packed.digest(), Size: packed.n, DiffID: unpacked.digest(), Unpacked: unpacked.n}
	text, err := json.Marshal(layer)
	if err != nil {
		return Layer{}, fmt.Errorf("describing layer %s: %w", file, err)
	}
	if err := os.Rename(temp.Name(), file); err != nil {
		return Layer{}, fmt.Errorf("storing layer %s: %w", file, err)
	}
	if err := os.WriteFile(file+".json", text, 0o644); err != nil {
		return Layer{}, fmt.Errorf("describing layer %s: %w", file, err)
	}
	return layer, nil
}

// ReadLayer returns the layer that an earlier WriteLayer left in file; false when there is none.
func ReadLayer(file string) (Layer, bool, error) {
	text, err := os.ReadFile(file + ".json")
	if errors.Is(err, os.ErrNotExist) {
		return Layer{}, false, nil
	}
	if err != nil {
		return Layer{}, false, fmt.Errorf("reading layer %s: %w", file, err)
	}
	layer := Layer{File: file}
	if err := json.Unmarshal(text, &layer); err != nil {
		return Layer{}, false, fmt.Errorf("reading layer %s: %w", file, err)
	}
	st, err := os.Stat(file)
	if err != nil || st.Size() != layer.Size {
		return Layer{}, false, nil //nolint:nilerr // A layer that is gone or cut short is made anew.
	}
	return layer, true, nil
}
