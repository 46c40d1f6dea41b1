// Package image writes container images as OCI archives, without a daemon and
// reproducibly: the same files give the same digest.
package image

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"runtime"
	"sort"
	"strings"
	"time"
)

// File is one entry of an image's only layer.
type File struct {
	// Path is absolute in the image.
	Path string
	// Source is the file on this machine that it copies.
	Source string
	// Data is the content when Source is empty.
	Data []byte
	// Link is the target when the entry is a symbolic link.
	Link string
	// Mode is its permission bits.
	Mode int64
}

// Image describes a container image.
type Image struct {
	// Ref is its full name with a tag.
	Ref string
	// Files are the content of its layer; folders are made as needed.
	Files []File
	// Entrypoint is the program that it runs.
	Entrypoint []string
	// User is the uid that it runs as; empty for root.
	User string
}

const (
	typeIndex    = "application/vnd.oci.image.index.v1+json"
	typeManifest = "application/vnd.oci.image.manifest.v1+json"
	typeConfig   = "application/vnd.oci.image.config.v1+json"
	typeLayer    = "application/vnd.oci.image.layer.v1.tar"
	// NameAnnotation is where containerd looks for an image's full name.
	NameAnnotation = "io.containerd.image.name"
	// RefAnnotation is the OCI layout's own place for a name or tag.
	RefAnnotation = "org.opencontainers.image.ref.name"
)

// Descriptor points at a blob.
type Descriptor struct {
	// MediaType is the blob's type.
	MediaType string `json:"mediaType"`
	// Digest is its sha256.
	Digest string `json:"digest"`
	// Size is its length in bytes.
	Size int64 `json:"size"`
	// Annotations name it.
	Annotations map[string]string `json:"annotations,omitempty"`
}

// Index is the index.json of an archive.
type Index struct {
	// SchemaVersion is 2.
	SchemaVersion int `json:"schemaVersion"`
	// MediaType is the index's type.
	MediaType string `json:"mediaType,omitempty"`
	// Manifests are the archive's images.
	Manifests []Descriptor `json:"manifests"`
}

type manifest struct {
	SchemaVersion int          `json:"schemaVersion"`
	MediaType     string       `json:"mediaType"`
	Config        Descriptor   `json:"config"`
	Layers        []Descriptor `json:"layers"`
}

type imageConfig struct {
	Architecture string    `json:"architecture"`
	OS           string    `json:"os"`
	Config       runConfig `json:"config"`
	RootFS       rootFS    `json:"rootfs"`
}

type runConfig struct {
	User       string   `json:"User,omitempty"`
	Env        []string `json:"Env,omitempty"`
	Entrypoint []string `json:"Entrypoint,omitempty"`
}

type rootFS struct {
	Type    string   `json:"type"`
	DiffIDs []string `json:"diff_ids"`
}

// Tag is a tag that changes with the image's description and with content, a key
// for what its source files hold.
func (img Image) Tag(content string) string {
	h := sha256.New()
	fmt.Fprintf(h, "%s\n%q\n%q\n", content, img.Entrypoint, img.User)
	for _, f := range img.Files {
		fmt.Fprintf(h, "%s %o %q %q\n", f.Path, f.Mode, f.Data, f.Link)
	}
	return hex.EncodeToString(h.Sum(nil))[:12]
}

// Write makes the archive at a path; an archive that exists is complete.
func (img Image) Write(target string) error {
	if err := os.MkdirAll(filepath.Dir(target), 0o755); err != nil {
		return fmt.Errorf("making the image cache: %w", err)
	}
	layer, err := os.CreateTemp(filepath.Dir(target), ".layer-")
	if err != nil {
		return fmt.Errorf("writing the layer of %s: %w", img.Ref, err)
	}
	defer os.Remove(layer.Name()) //nolint:errcheck // a temporary file
	defer layer.Close()           //nolint:errcheck // read back below
	layerDesc, err := img.writeLayer(layer)
	if err != nil {
		return fmt.Errorf("writing the layer of %s: %w", img.Ref, err)
	}
	out, err := os.CreateTemp(filepath.Dir(target), ".image-")
	if err != nil {
		return fmt.Errorf("writing %s: %w", target, err)
	}
	defer os.Remove(out.Name()) //nolint:errcheck // renamed away when complete
	defer out.Close()           //nolint:errcheck // closed below
	if err := img.writeArchive(out, layer, layerDesc); err != nil {
		return fmt.Errorf("writing %s: %w", target, err)
	}
	if err := out.Close(); err != nil {
		return fmt.Errorf("writing %s: %w", target, err)
	}
	if err := os.Rename(out.Name(), target); err != nil {
		return fmt.Errorf("keeping %s: %w", target, err)
	}
	return nil
}

// writeArchive writes layout, index, manifest, config and layer.
func (img Image) writeArchive(out io.Writer, layer *os.File, layerDesc Descriptor) error {
	config, err := json.Marshal(imageConfig{
		Architecture: runtime.GOARCH, OS: "linux",
		Config: runConfig{User: img.User, Entrypoint: img.Entrypoint, Env: []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}},
		RootFS: rootFS{Type: "layers", DiffIDs: []string{layerDesc.Digest}},
	})
	if err != nil {
		return err
	}
	man, err := json.Marshal(manifest{SchemaVersion: 2, MediaType: typeManifest, Config: describe(typeConfig, config), Layers: []Descriptor{layerDesc}})
	if err != nil {
		return err
	}
	desc := describe(typeManifest, man)
	_, tag, _ := strings.Cut(path.Base(img.Ref), ":")
	desc.Annotations = map[string]string{NameAnnotation: img.Ref, RefAnnotation: tag}
	index, err := json.Marshal(Index{SchemaVersion: 2, MediaType: typeIndex, Manifests: []Descriptor{desc}})
	if err != nil {
		return err
	}
	tw := tar.NewWriter(out)
	for _, f := range []struct {
		name string
		data []byte
	}{
		{"oci-layout", []byte(`{"imageLayoutVersion":"1.0.0"}`)},
		{"index.json", index},
		{blobName(desc.Digest), man},
		{blobName(describe(typeConfig, config).Digest), config},
	} {
		if err := writeEntry(tw, tar.Header{Name: f.name, Mode: 0o644, Size: int64(len(f.data))}, bytes.NewReader(f.data)); err != nil {
			return err
		}
	}
	if _, err := layer.Seek(0, io.SeekStart); err != nil {
		return err
	}
	if err := writeEntry(tw, tar.Header{Name: blobName(layerDesc.Digest), Mode: 0o644, Size: layerDesc.Size}, layer); err != nil {
		return err
	}
	return tw.Close()
}

// writeLayer writes the layer's tar and returns its descriptor.
func (img Image) writeLayer(out io.Writer) (Descriptor, error) {
	h, size := sha256.New(), new(counter)
	tw := tar.NewWriter(io.MultiWriter(out, h, size))
	files := append([]File(nil), img.Files...)
	sort.Slice(files, func(i, j int) bool { return files[i].Path < files[j].Path })
	made := map[string]bool{"/": true, ".": true}
	for _, f := range files {
		if err := writeParents(tw, made, path.Dir(f.Path)); err != nil {
			return Descriptor{}, err
		}
		if err := f.write(tw); err != nil {
			return Descriptor{}, fmt.Errorf("adding %s: %w", f.Path, err)
		}
	}
	if err := tw.Close(); err != nil {
		return Descriptor{}, err
	}
	return Descriptor{MediaType: typeLayer, Digest: "sha256:" + hex.EncodeToString(h.Sum(nil)), Size: int64(*size)}, nil
}

// writeParents adds the folders above a file once.
func writeParents(tw *tar.Writer, made map[string]bool, dir string) error {
	if made[dir] {
		return nil
	}
	if err := writeParents(tw, made, path.Dir(dir)); err != nil {
		return err
	}
	made[dir] = true
	mode := int64(0o755)
	if dir == "/tmp" {
		mode = 0o1777
	}
	return writeEntry(tw, tar.Header{Typeflag: tar.TypeDir, Name: strings.TrimPrefix(dir, "/") + "/", Mode: mode}, nil)
}

// write adds one file.
func (f File) write(tw *tar.Writer) error {
	header := tar.Header{Name: strings.TrimPrefix(f.Path, "/"), Mode: f.Mode}
	switch {
	case f.Link != "":
		header.Typeflag, header.Linkname = tar.TypeSymlink, f.Link
		return writeEntry(tw, header, nil)
	case f.Source == "":
		header.Size = int64(len(f.Data))
		return writeEntry(tw, header, bytes.NewReader(f.Data))
	}
	src, err := os.Open(f.Source)
	if err != nil {
		return err
	}
	defer src.Close() //nolint:errcheck // only read
	info, err := src.Stat()
	if err != nil {
		return err
	}
	header.Size = info.Size()
	return writeEntry(tw, header, src)
}

// writeEntry adds one entry with the fixed time of all entries.
func writeEntry(tw *tar.Writer, header tar.Header, data io.Reader) error {
	header.ModTime = time.Unix(0, 0)
	header.Format = tar.FormatUSTAR
	if header.Size > 8<<30 {
		header.Format = tar.FormatGNU
	}
	if err := tw.WriteHeader(&header); err != nil {
		return err
	}
	if data == nil {
		return nil
	}
	_, err := io.Copy(tw, data)
	return err
}

func describe(mediaType string, data []byte) Descriptor {
	sum := sha256.Sum256(data)
	return Descriptor{MediaType: mediaType, Digest: "sha256:" + hex.EncodeToString(sum[:]), Size: int64(len(data))}
}

func blobName(digest string) string {
	return "blobs/sha256/" + strings.TrimPrefix(digest, "sha256:")
}

// counter counts the bytes written to it.
type counter int64

func (c *counter) Write(p []byte) (int, error) {
	*c += counter(len(p))
	return len(p), nil
}
