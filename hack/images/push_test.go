//go:build containers_image_openpgp

package main

import (
	"io"
	"log"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/registry"

	"github.com/slipway-vm/slipway/hack/images/oci"
	"github.com/slipway-vm/slipway/hack/images/tree"
)

func TestPushKeepsTheDigest(t *testing.T) {
	server := httptest.NewServer(registry.New(registry.Logger(log.New(io.Discard, "", 0))))
	defer server.Close()
	dir := t.TempDir()
	layer, err := oci.WriteLayer(filepath.Join(dir, "layer"), tree.Tree{Extra: []tree.Entry{file("a", 0o644, "b")}, Time: time.Unix(0, 0)}.WriteTar)
	if err != nil {
		t.Fatal(err)
	}
	built := builtImage{Ref: "registry.local/slipway:0123456789ab", Archive: filepath.Join(dir, "x.tar")}
	built.Digest, err = oci.WriteArchive(built.Archive, oci.Image{Ref: built.Ref, Layers: []oci.Layer{layer}})
	if err != nil {
		t.Fatal(err)
	}
	host := strings.TrimPrefix(server.URL, "http://")
	target, digest, err := pushOne(t.Context(), built, "slipway", pushOptions{registry: host + "/team/", insecure: true})
	if err != nil {
		t.Fatal(err)
	}
	if want := host + "/team/slipway:0123456789ab"; target != want || digest != built.Digest {
		t.Errorf("pushed %s as %s, want %s as %s", digest, target, built.Digest, want)
	}
}
