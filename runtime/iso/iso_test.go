package iso_test

import (
	"fmt"
	"io/fs"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/slipway-vm/slipway/runtime/iso"
	"github.com/slipway-vm/slipway/tests/fixture/need"
)

func TestFilesKeepNamesPlacesAndModes(t *testing.T) {
	need.Program(t, "isoinfo", "genisoimage")
	long := strings.Repeat("long-", 20) + ".conf"
	files := map[string]iso.File{
		"token": {Data: []byte("t"), Mode: 0o640}, "empty": {Mode: 0o644}, ".dotfile": {Data: []byte("d"), Mode: 0o644},
		"application.properties": {Data: []byte("one"), Mode: 0o644}, "application.properties.bak": {Data: []byte("two"), Mode: 0o644},
		"application.yaml": {Data: []byte("three"), Mode: 0o644}, "Key": {Data: []byte("upper"), Mode: 0o644}, "key": {Data: []byte("lower"), Mode: 0o644},
		"deep/er/still/one": {Data: []byte("1"), Mode: 0o644}, "deep/er/two": {Data: []byte("2"), Mode: 0o644},
		"openstack/latest/user_data": {Data: []byte("u"), Mode: 0o600}, "openstack/latest/meta_data.json": {Data: []byte("{}"), Mode: 0o600},
		long: {Data: []byte("l"), Mode: 0o644},
	}
	path := filepath.Join(t.TempDir(), "disc.iso")
	if err := iso.Write(path, "settings", files); err != nil {
		t.Fatal(err)
	}
	if header := read(t, path, "-d"); !strings.Contains(header, "Volume id: settings\n") {
		t.Errorf("the label is not settings:\n%s", header)
	}
	listing := read(t, path, "-R", "-l")
	for name, file := range files {
		if got := read(t, path, "-R", "-x", "/"+name); got != string(file.Data) {
			t.Errorf("%s has %q, want %q", name, got, file.Data)
		}
		if got := read(t, path, "-J", "-x", "/"+name); name != long && got != string(file.Data) { // Joliet has 64 characters
			t.Errorf("%s has %q by Joliet, want %q", name, got, file.Data)
		}
		if mode := modeOf(listing, filepath.Base(name)); mode != file.Mode.String() {
			t.Errorf("%s has mode %s, want %s:\n%s", name, mode, file.Mode, listing)
		}
	}
	if mode := modeOf(listing, "latest"); mode != "d"+fs.FileMode(0o755).String()[1:] {
		t.Errorf("a folder has mode %s", mode)
	}
}

func TestManyFilesInAFolderAreFoundByJoliet(t *testing.T) {
	need.Program(t, "isoinfo", "genisoimage")
	files := map[string]iso.File{}
	for i := range 60 { // more than a sector of records
		files[fmt.Sprintf("many/folder-of-a-long-name-%02d/file", i)] = iso.File{Data: []byte{'0' + byte(i%10)}, Mode: 0o644}
	}
	path := filepath.Join(t.TempDir(), "disc.iso")
	if err := iso.Write(path, "many", files); err != nil {
		t.Fatal(err)
	}
	for _, i := range []int{0, 29, 30, 59} {
		name := fmt.Sprintf("many/folder-of-a-long-name-%02d/file", i)
		if got := read(t, path, "-J", "-x", "/"+name); got != string(files[name].Data) {
			t.Errorf("%s has %q by Joliet, want %q", name, got, files[name].Data)
		}
	}
}

func TestADiscOfNothingHasItsLabel(t *testing.T) {
	need.Program(t, "isoinfo", "genisoimage")
	path := filepath.Join(t.TempDir(), "disc.iso")
	if err := iso.Write(path, "nothing", nil); err != nil {
		t.Fatal(err)
	}
	if header := read(t, path, "-d"); !strings.Contains(header, "Volume id: nothing\n") {
		t.Errorf("the label is not nothing:\n%s", header)
	}
	if got := strings.TrimSpace(read(t, path, "-R", "-f")); got != "" {
		t.Errorf("it has %s", got)
	}
}

func TestNoFileLeavesTheDisc(t *testing.T) {
	path := filepath.Join(t.TempDir(), "disc.iso")
	if err := iso.Write(path, "x", map[string]iso.File{"../escape": {}}); err == nil {
		t.Error("a file was written beside the disc")
	}
}

func read(t *testing.T, path string, args ...string) string {
	t.Helper()
	out, err := exec.Command("isoinfo", append(args, "-i", path)...).Output()
	if err != nil {
		t.Fatalf("isoinfo %v: %v", args, err)
	}
	return string(out)
}

// modeOf finds the permissions of name in a listing.
func modeOf(listing, name string) string {
	for line := range strings.Lines(listing) {
		if fields := strings.Fields(line); len(fields) > 2 && fields[len(fields)-1] == name {
			return fields[0]
		}
	}
	return ""
}
