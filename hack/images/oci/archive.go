package oci

import (
	"archive/tar"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// Image is what an archive is made of.
type Image struct {
	// Ref is the full name with a tag; importers list the image under it.
	Ref string
	// Config is what a container of the image runs as.
	Config v1.Config
	// Layers go from the lowest to the topmost.
	Layers []Layer
	// Time is when the image says it was made.
	Time time.Time
}

// WriteArchive writes an OCI layout with this one image as a tar file and returns the digest of its manifest.
func WriteArchive(file string, image Image) (string, error) {
	config, err := json.Marshal(image.configFile())
	if err != nil {
		return "", fmt.Errorf("writing the config of %s: %w", image.Ref, err)
	}
	manifest, err := image.manifest(config)
	if err != nil {
		return "", err
	}
	index, err := image.index(manifest)
	if err != nil {
		return "", err
	}
	temp, err := os.Create(file + ".part")
	if err != nil {
		return "", fmt.Errorf("making archive of %s: %w", image.Ref, err)
	}
	defer os.Remove(temp.Name())
	tw := tar.NewWriter(temp)
	err = image.writeTar(tw, map[string][]byte{"config": config, "manifest": manifest, "index": index})
	if err = errors.Join(err, tw.Close(), temp.Close()); err != nil {
		return "", fmt.Errorf("writing archive of %s: %w", image.Ref, err)
	}
	if err := os.Rename(temp.Name(), file); err != nil {
		return "", fmt.Errorf("storing archive of %s: %w", image.Ref, err)
	}
	return digest(manifest), nil
}

// PackedSize is the sum of the layers' compressed sizes in bytes.
func (i Image) PackedSize() (n int64) {
	for _, l := range i.Layers {
		n += l.Size
	}
	return n
}

func (i Image) configFile() v1.ConfigFile {
	f := v1.ConfigFile{
		Architecture: "amd64", OS: "linux", Config: i.Config, Created: v1.Time{Time: i.Time.UTC()},
		RootFS: v1.RootFS{Type: "layers"},
	}
	for _, l := range i.Layers {
		f.RootFS.DiffIDs = append(f.RootFS.DiffIDs, toHash(l.DiffID))
		f.History = append(f.History, v1.History{Created: v1.Time{Time: i.Time.UTC()}, CreatedBy: "slipway hack/images"})
	}
	return f
}

func (i Image) manifest(config []byte) ([]byte, error) {
	m := v1.Manifest{
		SchemaVersion: 2, MediaType: types.OCIManifestSchema1,
		Config: v1.Descriptor{MediaType: types.OCIConfigJSON, Size: int64(len(config)), Digest: toHash(digest(config))},
	}
	for _, l := range i.Layers {
		m.Layers = append(m.Layers, v1.Descriptor{MediaType: types.OCILayer, Size: l.Size, Digest: toHash(l.Digest)})
	}
	text, err := json.Marshal(m)
	if err != nil {
		return nil, fmt.Errorf("writing the manifest of %s: %w", i.Ref, err)
	}
	return text, nil
}

func (i Image) index(manifest []byte) ([]byte, error) {
	text, err := json.Marshal(v1.IndexManifest{
		SchemaVersion: 2, MediaType: types.OCIImageIndex,
		Manifests: []v1.Descriptor{{
			MediaType: types.OCIManifestSchema1, Size: int64(len(manifest)), Digest: toHash(digest(manifest)),
			Platform: &v1.Platform{Architecture: "amd64", OS: "linux"},
			Annotations: map[string]string{
				"io.containerd.image.name":          i.Ref,
				"org.opencontainers.image.ref.name": i.Ref,
			},
		}},
	})
	if err != nil {
		return nil, fmt.Errorf("writing the index of %s: %w", i.Ref, err)
	}
	return text, nil
}

func (i Image) writeTar(tw *tar.Writer, texts map[string][]byte) error {
	for _, dir := range []string{"blobs/", "blobs/sha256/"} {
		if err := tw.WriteHeader(&tar.Header{Name: dir, Typeflag: tar.TypeDir, Mode: 0o755, ModTime: i.Time}); err != nil {
			return fmt.Errorf("writing %s: %w", dir, err)
		}
	}
	written := map[string]bool{}
	for _, l := range i.Layers {
		if written[l.Digest] {
			continue
		}
		written[l.Digest] = true
		if err := i.writeLayer(tw, l); err != nil {
			return err
		}
	}
	files := []struct {
		name string
		data []byte
	}{
		{blobPath(digest(texts["config"])), texts["config"]},
		{blobPath(digest(texts["manifest"])), texts["manifest"]},
		{"index.json", texts["index"]},
		{"oci-layout", []byte(`{"imageLayoutVersion":"1.0.0"}`)},
	}
	for _, f := range files {
		if err := tw.WriteHeader(&tar.Header{Name: f.name, Typeflag: tar.TypeReg, Mode: 0o644, Size: int64(len(f.data)), ModTime: i.Time}); err != nil {
			return fmt.Errorf("writing %s: %w", f.name, err)
		}
		if _, err := tw.Write(f.data); err != nil {
			return fmt.Errorf("writing %s: %w", f.name, err)
		}
	}
	return nil
}

func (i Image) writeLayer(tw *tar.Writer, l Layer) error {
	f, err := os.Open(l.File)
	if err != nil {
		return fmt.Errorf("opening a layer: %w", err)
	}
	defer f.Close()
	if err := tw.WriteHeader(&tar.Header{Name: blobPath(l.Digest), Typeflag: tar.TypeReg, Mode: 0o644, Size: l.Size, ModTime: i.Time}); err != nil {
		return fmt.Errorf("writing layer %s: %w", l.Digest, err)
	}
	if _, err := io.Copy(tw, f); err != nil {
		return fmt.Errorf("writing layer %s: %w", l.Digest, err)
	}
	return nil
}

func blobPath(digest string) string { return "blobs/sha256/" + digest[len("sha256:"):] }

func digest(data []byte) string {
	sum := sha256.Sum256(data)
	return "sha256:" + hex.EncodeToString(sum[:])
}

// toHash turns a digest that this package computed into the library's form.
func toHash(digest string) v1.Hash {
	return v1.Hash{Algorithm: "sha256", Hex: digest[len("sha256:"):]}
}
