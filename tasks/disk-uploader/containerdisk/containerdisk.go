// Package containerdisk makes the parts of a containerDisk: an OCI image with one layer that holds
// one disk. Nothing in it depends on time or machine, so a disk always gives the same image.
package containerdisk

import (
	"archive/tar"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"hash"
	"io"
	"runtime"
	"slices"
	"strings"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"github.com/klauspost/pgzip"
	instancetypeapi "kubevirt.io/api/instancetype"

	"github.com/slipway-vm/slipway/internal/names"
)

// Folder is where the one file of a containerDisk is.
const Folder = "disk"

// file is the disk in the layer.
const file = Folder + "/disk.qcow2"

// Compression of the layer: a fast level, since the network is seldom faster.
const (
	level     = 3
	blockSize = 1 << 20
	// compressors work at once at most; each holds a few blocks.
	compressors = 4
)

// Blob is a part of an image as the registry stores it.
type Blob struct {
	Digest v1.Hash
	Size   int64
}

// Layer is the compressed layer, and the digest of the archive within.
type Layer struct {
	Blob
	DiffID v1.Hash
}

// WriteLayer writes a layer with the disk of size bytes that write produces to w.
func WriteLayer(w io.Writer, size int64, write func(io.Writer) error) (Layer, error) {
	packed, unpacked := newSum(), newSum()
	zip, err := pgzip.NewWriterLevel(io.MultiWriter(w, packed), level)
	if err != nil {
		return Layer{}, fmt.Errorf("compressing the layer: %w", err)
	}
	if err := zip.SetConcurrency(blockSize, min(compressors, runtime.GOMAXPROCS(0))); err != nil {
		return Layer{}, fmt.Errorf("compressing the layer: %w", err)
	}
	err = writeTar(io.MultiWriter(zip, unpacked), size, write)
	if closeErr := zip.Close(); err == nil && closeErr != nil {
		err = fmt.Errorf("compressing the layer: %w", closeErr)
	}
	if err != nil {
		return Layer{}, err
	}
	return Layer{Blob: Blob{Digest: packed.digest(), Size: packed.size}, DiffID: unpacked.digest()}, nil
}

// writeTar writes the archive: the folder and the disk, both QEMU's.
func writeTar(w io.Writer, size int64, write func(io.Writer) error) error {
	archive := tar.NewWriter(w)
	for _, header := range []*tar.Header{
		{Typeflag: tar.TypeDir, Name: Folder + "/", Mode: 0o555},
		{Typeflag: tar.TypeReg, Name: file, Mode: 0o440, Size: size},
	} {
		header.Uid, header.Gid, header.ModTime = names.QEMUUser, names.QEMUUser, time.Unix(0, 0)
		if err := archive.WriteHeader(header); err != nil {
			return fmt.Errorf("writing %s of the layer: %w", header.Name, err)
		}
	}
	if err := write(archive); err != nil {
		return err
	}
	if err := archive.Close(); err != nil {
		return fmt.Errorf("ending the layer: %w", err)
	}
	return nil
}

// sum is digest and size of what is written to it.
type sum struct {
	hash.Hash
	size int64
}

func newSum() *sum { return &sum{Hash: sha256.New()} }

func (s *sum) Write(p []byte) (int, error) {
	s.size += int64(len(p))
	return s.Hash.Write(p) //nolint:wrapcheck // a hash never fails
}

func (s *sum) digest() v1.Hash {
	return v1.Hash{Algorithm: "sha256", Hex: hex.EncodeToString(s.Sum(nil))}
}

// Image is what an image says beside its layer.
type Image struct {
	Layer Layer
	// Architecture is that of the guest, such as "amd64".
	Architecture string
	// Labels are those of the disk's claim; some become environment variables.
	Labels map[string]string
}

// defaults are the labels that importers of the image read from its environment.
var defaults = []string{
	instancetypeapi.DefaultInstancetypeLabel, instancetypeapi.DefaultInstancetypeKindLabel,
	instancetypeapi.DefaultPreferenceLabel, instancetypeapi.DefaultPreferenceKindLabel,
}

// environment is how an image carries the default instance type and preference.
func (i Image) environment() []string {
	variable := strings.NewReplacer(".", "_", "/", "_", "-", "_")
	var env []string
	for _, label := range defaults {
		if value := i.Labels[label]; value != "" {
			env = append(env, strings.ToUpper(variable.Replace(label))+"="+value)
		}
	}
	slices.Sort(env)
	return env
}

// Config returns the image's config as JSON.
func (i Image) Config() ([]byte, error) {
	config := v1.ConfigFile{
		Architecture: i.Architecture, OS: "linux", Config: v1.Config{Env: i.environment()},
		RootFS: v1.RootFS{Type: "layers", DiffIDs: []v1.Hash{i.Layer.DiffID}},
	}
	data, err := json.Marshal(config)
	if err != nil {
		return nil, fmt.Errorf("writing the image's config: %w", err)
	}
	return data, nil
}

// Manifest returns the image's manifest as JSON, for the config that Config returned.
func (i Image) Manifest(config []byte) ([]byte, error) {
	s := newSum()
	if _, err := s.Write(config); err != nil {
		return nil, err
	}
	data, err := json.Marshal(v1.Manifest{
		SchemaVersion: 2, MediaType: types.OCIManifestSchema1,
		Config: v1.Descriptor{MediaType: types.OCIConfigJSON, Size: s.size, Digest: s.digest()},
		Layers: []v1.Descriptor{{MediaType: types.OCILayer, Size: i.Layer.Size, Digest: i.Layer.Digest}},
	})
	if err != nil {
		return nil, fmt.Errorf("writing the image's manifest: %w", err)
	}
	return data, nil
}

// MediaType is that of the manifest.
const MediaType = string(types.OCIManifestSchema1)
