package image

import (
	"archive/tar"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
)

// Named is an image in an archive.
type Named struct {
	// Ref is the full name that containerd will give it.
	Ref string
	// Digest is that of its manifest or index.
	Digest string
}

// Contents lists the images of an OCI archive.
func Contents(archive string) ([]Named, error) {
	f, err := os.Open(archive)
	if err != nil {
		return nil, fmt.Errorf("opening the image archive: %w", err)
	}
	defer f.Close() //nolint:errcheck // only read
	index, err := readIndex(tar.NewReader(f))
	if err != nil {
		return nil, fmt.Errorf("reading the index of %s: %w; give an OCI archive (a tar of an OCI layout)", archive, err)
	}
	named := make([]Named, 0, len(index.Manifests))
	for _, d := range index.Manifests {
		ref := fullName(d.Annotations)
		if ref == "" {
			return nil, fmt.Errorf("image %s in %s has no full name; annotate its index with %s", d.Digest, archive, NameAnnotation)
		}
		named = append(named, Named{Ref: ref, Digest: d.Digest})
	}
	return named, nil
}

// fullName is the name that an index entry carries, in containerd's annotation
// or, with a domain and a tag, in OCI's own.
func fullName(annotations map[string]string) string {
	if name := annotations[NameAnnotation]; name != "" {
		return name
	}
	if name := annotations[RefAnnotation]; strings.Contains(name, "/") && strings.Contains(name, ":") {
		return name
	}
	return ""
}

func readIndex(tr *tar.Reader) (Index, error) {
	for {
		header, err := tr.Next()
		if errors.Is(err, io.EOF) {
			return Index{}, errors.New("it holds no index.json")
		}
		if err != nil {
			return Index{}, err
		}
		if strings.TrimPrefix(header.Name, "./") != "index.json" {
			continue
		}
		var index Index
		err = json.NewDecoder(tr).Decode(&index)
		return index, err
	}
}

// Stream copies an archive so that every image carries the annotation that
// containerd reads names from.
func Stream(out io.Writer, archive string) error {
	f, err := os.Open(archive)
	if err != nil {
		return fmt.Errorf("opening the image archive: %w", err)
	}
	defer f.Close() //nolint:errcheck // only read
	tr, tw := tar.NewReader(f), tar.NewWriter(out)
	for {
		header, err := tr.Next()
		if errors.Is(err, io.EOF) {
			return tw.Close()
		}
		if err != nil {
			return fmt.Errorf("reading %s: %w", archive, err)
		}
		var data io.Reader = tr
		if strings.TrimPrefix(header.Name, "./") == "index.json" {
			var text string
			if text, err = renameIndex(tr); err != nil {
				return fmt.Errorf("reading the index of %s: %w", archive, err)
			}
			header.Size, data = int64(len(text)), strings.NewReader(text)
		}
		if err := tw.WriteHeader(header); err != nil {
			return fmt.Errorf("copying %s: %w", archive, err)
		}
		if _, err := io.Copy(tw, data); err != nil {
			return fmt.Errorf("copying %s: %w", archive, err)
		}
	}
}

// renameIndex returns index.json with containerd's annotation on every image;
// all else in it is kept.
func renameIndex(r io.Reader) (string, error) {
	var index map[string]any
	if err := json.NewDecoder(r).Decode(&index); err != nil {
		return "", err
	}
	manifests, _ := index["manifests"].([]any)
	for _, m := range manifests {
		entry, _ := m.(map[string]any)
		have, _ := entry["annotations"].(map[string]any)
		if name, _ := have[RefAnnotation].(string); have != nil && have[NameAnnotation] == nil {
			have[NameAnnotation] = name
		}
	}
	b, err := json.Marshal(index)
	return string(b), err
}
