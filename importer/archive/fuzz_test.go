package archive_test

import (
	"archive/tar"
	"bytes"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/slipway-vm/slipway/importer/archive"
	"github.com/slipway-vm/slipway/internal/transfer"
)

// FuzzArchive unpacks whatever is given beside a file that none may touch: either it fails for
// a reason and leaves nothing, or all that it made is in its directory.
func FuzzArchive(f *testing.F) {
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	for _, h := range []tar.Header{
		{Typeflag: tar.TypeDir, Name: "d", Mode: 0o500}, {Typeflag: tar.TypeReg, Name: "d/f", Size: 3, Mode: 0o644},
		{Typeflag: tar.TypeSymlink, Name: "l", Linkname: "../guard"}, {Typeflag: tar.TypeLink, Name: "h", Linkname: "d/f"},
		{Typeflag: tar.TypeReg, Name: "../guard"}, {Typeflag: tar.TypeReg, Name: "l/guard"}, {Typeflag: tar.TypeFifo, Name: "p"},
	} {
		if err := w.WriteHeader(&h); err != nil {
			f.Fatal(err)
		}
		if _, err := w.Write(make([]byte, h.Size)); err != nil {
			f.Fatal(err)
		}
		f.Add(bytes.Clone(out.Bytes()))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		dir := t.TempDir()
		guard, root := filepath.Join(dir, "guard"), filepath.Join(dir, "root")
		if err := os.Mkdir(guard, 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.Mkdir(root, 0o700); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { opened(root) })
		tree, err := archive.Begin(root)
		if err != nil {
			t.Fatal(err)
		}
		if err = tree.Add(t.Context(), bytes.NewReader(data), 1<<20); err == nil {
			err = tree.Commit(t.Context())
		}
		if err != nil {
			if reason := transfer.ReasonOf(err); reason == transfer.Internal || reason == transfer.TargetFailed {
				t.Errorf("%s: %v", reason, err)
			}
			if err := tree.Abort(); err != nil {
				t.Error(err)
			}
			if left, err := os.ReadDir(root); err != nil || len(left) > 0 {
				t.Errorf("there is %v left (%v)", left, err)
			}
		}
		if left, err := os.ReadDir(guard); err != nil || len(left) > 0 {
			t.Errorf("outside there is %v (%v)", left, err)
		}
		if left, err := os.ReadDir(dir); err != nil || len(left) != 2 {
			t.Errorf("outside there is %v (%v)", left, err)
		}
	})
}

// opened lets closed directories be removed.
func opened(dir string) {
	_ = filepath.WalkDir(dir, func(path string, entry fs.DirEntry, _ error) error {
		if entry != nil && entry.IsDir() {
			_ = os.Chmod(path, 0o700)
		}
		return nil
	})
}
