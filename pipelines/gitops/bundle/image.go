package bundle

import (
	"archive/tar"
	"bytes"
	"fmt"
	"io"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// Limit is how many objects Tekton takes in one bundle.
const Limit = 20

// Annotations of a layer, by which Tekton finds an object.
const (
	annotationName       = "dev.tekton.image.name"
	annotationKind       = "dev.tekton.image.kind"
	annotationAPIVersion = "dev.tekton.image.apiVersion"
)

// Image is a bundle: an OCI image with a layer for each object. The same objects give the same digest.
func Image(objects []Object) (v1.Image, error) {
	if len(objects) == 0 || len(objects) > Limit {
		return nil, fmt.Errorf("a bundle holds 1 to %d objects, not %d", Limit, len(objects))
	}
	image := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	seen := map[string]bool{}
	for _, o := range objects {
		layer, err := layerOf(o)
		if err != nil {
			return nil, err
		}
		kind := strings.ToLower(o.Kind)
		id := o.APIVersion + " " + kind + " " + o.Name
		if seen[id] {
			return nil, fmt.Errorf("%s is there twice", id)
		}
		seen[id] = true
		image, err = mutate.Append(image, mutate.Addendum{Layer: layer, MediaType: types.OCILayer, Annotations: map[string]string{
			annotationName: o.Name, annotationKind: kind, annotationAPIVersion: o.APIVersion,
		}})
		if err != nil {
			return nil, fmt.Errorf("adding %s %s to the bundle: %w", o.Kind, o.Name, err)
		}
	}
	return image, nil
}

// layerOf is a compressed tar archive with the object as its only file.
func layerOf(o Object) (v1.Layer, error) {
	text, err := o.YAML()
	if err != nil {
		return nil, err
	}
	var archive bytes.Buffer
	w := tar.NewWriter(&archive)
	if err := w.WriteHeader(&tar.Header{Name: o.Name, Mode: 0o644, Size: int64(len(text)), Format: tar.FormatUSTAR}); err != nil {
		return nil, fmt.Errorf("packing %s %s: %w", o.Kind, o.Name, err)
	}
	if _, err := w.Write(text); err != nil {
		return nil, fmt.Errorf("packing %s %s: %w", o.Kind, o.Name, err)
	}
	if err := w.Close(); err != nil {
		return nil, fmt.Errorf("packing %s %s: %w", o.Kind, o.Name, err)
	}
	layer, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) {
		return io.NopCloser(bytes.NewReader(archive.Bytes())), nil
	}, tarball.WithMediaType(types.OCILayer))
	if err != nil {
		return nil, fmt.Errorf("packing %s %s: %w", o.Kind, o.Name, err)
	}
	return layer, nil
}
