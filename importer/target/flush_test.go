package target

import (
	"errors"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/slipway-vm/slipway/internal/transfer"
)

// The kernel tells once that what was written did not get to the disk: who writes next hears of it, and who ends.
func TestAFlushThatFailsIsHeardOf(t *testing.T) {
	var f flusher
	none := -1
	if err := f.wrote(none, flushEvery-1); err != nil || f.wait() != nil {
		t.Fatalf("nothing was flushed yet: %v", err)
	}
	_ = f.wrote(none, flushEvery) // begins it, and need not wait for it
	if err := f.wait(); !errors.Is(err, unix.EBADF) {
		t.Errorf("the end heard %v", err)
	}
	if err := f.wrote(none, flushEvery+1); !errors.Is(err, unix.EBADF) {
		t.Errorf("the next write heard %v", err)
	}
}

// A disk of which a part did not get to where it is kept is not finished, and takes nothing more.
func TestADiskThatIsNotSafe(t *testing.T) {
	path := filepath.Join(t.TempDir(), "disk.img")
	d, err := Open(Options{Path: path})
	if err != nil {
		t.Fatal(err)
	}
	if err := d.Begin(hugePage); err != nil {
		t.Fatal(err)
	}
	data := []byte{1}
	if err := d.Write(data, 0); err != nil {
		t.Fatal(err)
	}
	var full error = unix.ENOSPC
	d.flusher.failed.Store(&full)
	if err := d.Write(data, 0); transfer.ReasonOf(err) != transfer.NoSpace {
		t.Errorf("more is written: %v", err)
	}
	if err := d.Commit(t.Context()); transfer.ReasonOf(err) != transfer.NoSpace {
		t.Errorf("it is finished: %v", err)
	}
	if err := d.Abort(); err != nil {
		t.Error(err)
	}
}
