package target_test

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"github.com/slipway-vm/slipway/importer/target"
	"github.com/slipway-vm/slipway/internal/transfer"
)

// An importer whose pod was deleted by force may outlive it for a moment, and end in either way while its successor writes.
func TestAnImporterLeavesTheFileOfItsSuccessorAlone(t *testing.T) {
	for name, end := range map[string]func(*testing.T, *target.Disk){
		"when it is through": func(t *testing.T, earlier *target.Disk) {
			t.Helper()
			if err := earlier.Commit(t.Context()); transfer.ReasonOf(err) != transfer.TargetFailed {
				t.Errorf("got %v", err)
			}
		},
		"when it gives up": func(t *testing.T, earlier *target.Disk) {
			t.Helper()
			if err := earlier.Abort(); err != nil {
				t.Error(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "disk.img")
			earlier, later := begin(t, path, 'a'), begin(t, path, 'b')
			end(t, earlier)
			if _, err := os.Lstat(path); !os.IsNotExist(err) {
				t.Errorf("there is a disk before it is whole: %v", err)
			}
			if err := later.Commit(t.Context()); err != nil {
				t.Fatal(err)
			}
			have, err := os.ReadFile(path)
			if err != nil || !bytes.Equal(have, content('b')) {
				t.Errorf("the disk is not the successor's: %v", err)
			}
		})
	}
}

// begin begins a disk, and writes all of it.
func begin(t *testing.T, path string, letter byte) *target.Disk {
	t.Helper()
	disk, err := target.Open(target.Options{Path: path})
	if err != nil {
		t.Fatal(err)
	}
	if err := disk.Begin(int64(len(content(letter)))); err != nil {
		t.Fatal(err)
	}
	if err := disk.Write(content(letter), 0); err != nil {
		t.Fatal(err)
	}
	return disk
}

func content(letter byte) []byte { return bytes.Repeat([]byte{letter}, 1<<20) }
