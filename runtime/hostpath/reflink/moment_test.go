package reflink_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/slipway-vm/slipway/runtime/hostpath/reflink"
)

// elsewhere is a folder on another file system than t.TempDir(), with which no blocks are shared.
func elsewhere(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("/dev/shm", "slipway-reflink-")
	check(t, err)
	t.Cleanup(func() { check(t, os.RemoveAll(dir)) })
	return dir
}

func TestACopyOfWhatIsWrittenMeanwhileIsNone(t *testing.T) {
	for name, change := range map[string]func(src string) error{
		"nothing is written": func(string) error { return nil },
		"the file that is copied": func(src string) error {
			return overwrite(filepath.Join(src, "b"))
		},
		"a file that was copied before": func(src string) error {
			return overwrite(filepath.Join(src, "a"))
		},
		"a file that goes":  func(src string) error { return os.Remove(filepath.Join(src, "a")) },
		"a file that comes": func(src string) error { return os.WriteFile(filepath.Join(src, "c"), nil, 0o600) },
	} {
		t.Run(name, func(t *testing.T) {
			src, dst := t.TempDir(), elsewhere(t)
			for _, file := range []string{"a", "b"} {
				check(t, os.WriteFile(filepath.Join(src, file), make([]byte, 1<<20), 0o600))
			}
			from, to := root(t, src), root(t, dst)
			var steps int
			_, err := reflink.Tree(t.Context(), to, from, func(int64) {
				if steps++; steps == 2 { // of the second file
					time.Sleep(50 * time.Millisecond)
					check(t, change(src))
				}
			})
			if changed := name != "nothing is written"; errors.Is(err, reflink.ErrChanged) != changed || !changed && err != nil {
				t.Errorf("got %v", err)
			}
		})
	}
}

// overwrite changes a byte of a file.
func overwrite(path string) error {
	file, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = file.WriteAt([]byte("x"), 100)
	return errors.Join(err, file.Close())
}

func TestACopyOfADiskThatIsWrittenMeanwhileIsNone(t *testing.T) {
	source := filepath.Join(t.TempDir(), "disk")
	check(t, os.WriteFile(source, make([]byte, 1<<20), 0o600))
	src, err := os.Open(source)
	check(t, err)
	defer src.Close()
	for name, written := range map[string]bool{"at rest": false, "in use": true} {
		dst, err := os.Create(filepath.Join(elsewhere(t), "disk"))
		check(t, err)
		_, err = reflink.File(t.Context(), dst, src, func(int64) {
			if written {
				check(t, overwrite(source))
			}
		})
		if errors.Is(err, reflink.ErrChanged) != written || !written && err != nil {
			t.Errorf("%s: %v", name, err)
		}
		check(t, dst.Close())
	}
}
