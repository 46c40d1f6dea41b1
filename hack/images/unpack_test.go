package main

import (
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/slipway-vm/slipway/hack/images/cache"
	"github.com/slipway-vm/slipway/hack/images/oci"
	"github.com/slipway-vm/slipway/hack/images/tree"
)

// archiveOf packs files of the test's own user, a layer each.
func archiveOf(t *testing.T, layers ...[]tree.Entry) string {
	t.Helper()
	dir := t.TempDir()
	image := oci.Image{Ref: "registry.local/x:1", Time: time.Unix(1700000000, 0)}
	for i, entries := range layers {
		for j := range entries {
			entries[j].UID, entries[j].GID = os.Getuid(), os.Getgid()
		}
		layer, err := oci.WriteLayer(filepath.Join(dir, string(rune('a'+i))), func(w io.Writer) error {
			return tree.Tree{Extra: entries, Time: image.Time}.WriteTar(w)
		})
		if err != nil {
			t.Fatal(err)
		}
		image.Layers = append(image.Layers, layer)
	}
	archive := filepath.Join(dir, "x-0123.tar")
	if _, err := oci.WriteArchive(archive, image); err != nil {
		t.Fatal(err)
	}
	return archive
}

func TestUnpackedHasAllLayersInTheirOrder(t *testing.T) {
	archive := archiveOf(t,
		[]tree.Entry{file("lower", 0o600, "lower"), file("both", 0o644, "of the lower layer")},
		[]tree.Entry{file("both", 0o755, "of the upper layer")})
	dir := cache.Dir(t.TempDir())
	root, err := unpacked(t.Context(), dir, "x", archive)
	if err != nil {
		t.Fatal(err)
	}
	both, err := os.ReadFile(filepath.Join(root, "both"))
	if err != nil || string(both) != "of the upper layer" {
		t.Errorf("both is %q (%v)", both, err)
	}
	info, err := os.Stat(filepath.Join(root, "lower"))
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("lower is %v (%v), want mode 600", info, err)
	}
	if err := os.Remove(archive); err != nil {
		t.Fatal(err)
	}
	if again, err := unpacked(t.Context(), dir, "x", archive); err != nil || again != root {
		t.Errorf("the second time it is %s (%v), want %s from the cache", again, err, root)
	}
}

func TestABrokenArchiveLeavesNoRoot(t *testing.T) {
	archive := archiveOf(t, []tree.Entry{file("a", 0o644, strings.Repeat("content ", 1000))})
	if err := os.Truncate(archive, 2100); err != nil {
		t.Fatal(err)
	}
	dir := cache.Dir(t.TempDir())
	if root, err := unpacked(t.Context(), dir, "x", archive); err == nil {
		t.Errorf("a broken archive gives %s", root)
	}
	if left, err := os.ReadDir(dir.Path("roots")); err != nil || len(left) > 0 {
		t.Errorf("left over: %v (%v)", left, err)
	}
}
