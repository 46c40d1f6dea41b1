package dumpfile_test

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/slipway-vm/slipway/runtime/launcher/dumpfile"
)

const name = "web-dumps-20260102-030405.memory.dump"

// claim is a folder with files in it, opened as virt-handler does: to look things up only.
func claim(t *testing.T, files ...string) (string, *os.File) {
	t.Helper()
	dir := t.TempDir()
	for _, file := range files {
		if err := os.WriteFile(filepath.Join(dir, file), []byte("old"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	fd, err := unix.Open(dir, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	folder := os.NewFile(uintptr(fd), dir)
	t.Cleanup(func() { _ = folder.Close() })
	return dir, folder
}

func list(t *testing.T, dir string) []string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	for _, entry := range entries {
		all = append(all, entry.Name())
	}
	return all
}

func TestAFileHasItsNameOnceItIsWhole(t *testing.T) {
	dir, folder := claim(t)
	file, err := dumpfile.Create(folder, name)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := file.Open().WriteString("memory"); err != nil {
		t.Fatal(err)
	}
	if got := list(t, dir); !slices.Equal(got, []string{name + ".partial"}) {
		t.Errorf("while it is written: %v", got)
	}
	if err := file.Keep(); err != nil {
		t.Fatal(err)
	}
	content, err := os.ReadFile(filepath.Join(dir, name))
	if got := list(t, dir); err != nil || string(content) != "memory" || !slices.Equal(got, []string{name}) {
		t.Errorf("%v, %q, %v", got, content, err)
	}
}

func TestHalfMadeFilesAreRemoved(t *testing.T) {
	const (
		left     = "web-dumps-20260101-000000.memory.dump.partial"
		whole    = "web-dumps-20260101-000000.memory.dump"
		another  = "web2-dumps-20260101-000000.memory.dump.partial"
		lookFree = "web-dumps-of-mine.partial"
	)
	dir, folder := claim(t, left, whole, another, lookFree)
	file, err := dumpfile.Create(folder, name)
	if err != nil {
		t.Fatal(err)
	}
	if err := file.Discard(); err != nil {
		t.Fatal(err)
	}
	if got := list(t, dir); !slices.Equal(got, []string{whole, lookFree, another}) {
		t.Errorf("got %v", got)
	}
}

func TestLinksAreNotFollowed(t *testing.T) {
	dir, folder := claim(t)
	other := filepath.Join(t.TempDir(), "other")
	if err := os.WriteFile(other, []byte("precious"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(other, filepath.Join(dir, name+".partial")); err != nil {
		t.Fatal(err)
	}
	file, err := dumpfile.Create(folder, name) // the link is a half-made file of an earlier attempt
	if err != nil {
		t.Fatal(err)
	}
	if _, err := file.Open().WriteString("memory"); err != nil {
		t.Fatal(err)
	}
	if err := file.Keep(); err != nil {
		t.Fatal(err)
	}
	if content, err := os.ReadFile(other); err != nil || string(content) != "precious" {
		t.Errorf("the link was followed: %q, %v", content, err)
	}
	for _, bad := range []string{"../x-20260102-030405.memory.dump", "-20260102-030405.memory.dump", ""} {
		if _, err := dumpfile.Create(folder, bad); err == nil {
			t.Errorf("%q was taken", bad)
		}
	}
}
