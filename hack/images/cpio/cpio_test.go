package cpio

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/slipway-vm/slipway/tests/fixture/need"
)

func TestArchiveDependsOnlyOnContentAndIsReadByCpio(t *testing.T) {
	var packed [2]bytes.Buffer
	for i := range packed {
		root := t.TempDir()
		if err := os.MkdirAll(filepath.Join(root, "usr/bin"), 0o755); err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{"usr/bin/a", "init"} {
			if err := os.WriteFile(filepath.Join(root, name), []byte("x"+name), 0o755); err != nil {
				t.Fatal(err)
			}
		}
		if err := os.Symlink("usr/bin", filepath.Join(root, "bin")); err != nil {
			t.Fatal(err)
		}
		if err := Write(&packed[i], root); err != nil {
			t.Fatal(err)
		}
	}
	if !bytes.Equal(packed[0].Bytes(), packed[1].Bytes()) {
		t.Error("two folders of the same content gave different archives")
	}
	list := exec.Command(need.Program(t, "cpio", "cpio"), "--list", "--quiet")
	list.Stdin = &packed[0]
	out, err := list.CombinedOutput()
	if err != nil {
		t.Fatalf("cpio: %v: %s", err, out)
	}
	if got, want := strings.Fields(string(out)), "bin init usr usr/bin usr/bin/a dev/console"; strings.Join(got, " ") != want {
		t.Errorf("cpio lists %v, want %s", got, want)
	}
}
