package oci

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"testing"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/validate"

	"github.com/slipway-vm/slipway/hack/images/tree"
)

func testImage(t *testing.T, dir string) Image {
	t.Helper()
	when := time.Unix(1700000000, 0)
	layer, err := WriteLayer(filepath.Join(dir, "layer"), func(w io.Writer) error {
		return tree.Tree{Extra: []tree.Entry{{Path: "a/b", Mode: 0o644, Data: "hello"}}, Time: when}.WriteTar(w)
	})
	if err != nil {
		t.Fatal(err)
	}
	return Image{Ref: "registry.local/x:1", Config: v1.Config{User: "107"}, Layers: []Layer{layer}, Time: when}
}

func TestArchiveIsAlwaysTheSame(t *testing.T) {
	var archives [][]byte
	var digests []string
	for range 2 {
		dir := t.TempDir()
		digest, err := WriteArchive(filepath.Join(dir, "x.tar"), testImage(t, dir))
		if err != nil {
			t.Fatal(err)
		}
		data, err := os.ReadFile(filepath.Join(dir, "x.tar"))
		if err != nil {
			t.Fatal(err)
		}
		archives, digests = append(archives, data), append(digests, digest)
	}
	if digests[0] != digests[1] || !bytes.Equal(archives[0], archives[1]) {
		t.Errorf("two archives of the same image differ: %v", digests)
	}
}

func TestArchiveIsAValidLayout(t *testing.T) {
	dir := t.TempDir()
	image := testImage(t, dir)
	digest, err := WriteArchive(filepath.Join(dir, "x.tar"), image)
	if err != nil {
		t.Fatal(err)
	}
	unpacked := untar(t, filepath.Join(dir, "x.tar"))
	index, err := layout.ImageIndexFromPath(unpacked)
	if err != nil {
		t.Fatal(err)
	}
	if err := validate.Index(index); err != nil {
		t.Errorf("the layout is not valid: %v", err)
	}
	manifest, err := index.IndexManifest()
	if err != nil || len(manifest.Manifests) != 1 {
		t.Fatalf("index %+v (%v), want one image", manifest, err)
	}
	if got := manifest.Manifests[0]; got.Digest.String() != digest || got.Annotations["io.containerd.image.name"] != image.Ref {
		t.Errorf("index names %s as %v, want %s as %s", got.Digest, got.Annotations, digest, image.Ref)
	}
}

func TestLayerIsFoundAgainUnlessDamaged(t *testing.T) {
	dir := t.TempDir()
	want := testImage(t, dir).Layers[0]
	got, ok, err := ReadLayer(want.File)
	if err != nil || !ok || got != want {
		t.Errorf("read %+v %t %v, want %+v", got, ok, err, want)
	}
	if err := os.Truncate(want.File, 10); err != nil {
		t.Fatal(err)
	}
	if _, ok, err := ReadLayer(want.File); ok || err != nil {
		t.Errorf("a layer cut short was found (%v)", err)
	}
	if _, ok, err := ReadLayer(filepath.Join(dir, "none")); ok || err != nil {
		t.Errorf("a layer that is not there was found (%v)", err)
	}
}
