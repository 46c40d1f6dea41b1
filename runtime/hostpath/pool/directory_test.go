package pool_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/slipway-vm/slipway/runtime/hostpath/pool"
)

func TestADirectoryWithoutARecordIsMadeAndRemovedAsOftenAsAsked(t *testing.T) {
	p, dir := open(t)
	name := strings.Repeat("a", 210) + "-pvc-1" // longer than a volume's may be
	for range 2 {
		check(t, p.MakeDirectory(name, 1<<20))
		info, err := os.Stat(filepath.Join(dir, name))
		if check(t, err); !info.IsDir() || info.Mode().Perm() != 0o777 {
			t.Errorf("it is %v", info.Mode())
		}
	}
	check(t, os.WriteFile(filepath.Join(dir, name, "disk.img"), []byte("data"), 0o600))
	for range 2 {
		check(t, p.RemoveDirectory(name))
		if _, err := os.Stat(filepath.Join(dir, name)); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("after its removal: %v", err)
		}
	}
	if _, err := os.Stat(filepath.Join(dir, ".slipway")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the directory has got what it had not: %v", err)
	}
}

func TestNothingOutsideIsMadeOrRemovedAsADirectory(t *testing.T) {
	p, dir := open(t)
	outside := t.TempDir()
	check(t, os.WriteFile(filepath.Join(outside, "kept"), nil, 0o600))
	check(t, os.Symlink(outside, filepath.Join(dir, "pvc-link")))
	if err := p.MakeDirectory("pvc-link", 1<<20); err == nil {
		t.Error("a link is taken for a directory")
	}
	check(t, p.RemoveDirectory("pvc-link"))
	check(t, os.Mkdir(filepath.Join(dir, "pvc-1"), 0o755))
	check(t, os.Symlink(outside, filepath.Join(dir, "pvc-1/link")))
	check(t, p.RemoveDirectory("pvc-1"))
	if _, err := os.Stat(filepath.Join(outside, "kept")); err != nil {
		t.Error(err)
	}
	for _, name := range []string{"", ".", "..", ".slipway", "a/b", "../outside", "a\x00b", strings.Repeat("x", 256)} {
		if p.MakeDirectory(name, 1<<20) == nil || p.RemoveDirectory(name) == nil {
			t.Errorf("%q is taken for a name", name)
		}
	}
}

func TestADirectoryIsMadeForAPoolOnlyWhereTheOneAroundItIs(t *testing.T) {
	dir := t.TempDir()
	if _, err := pool.OpenOrMake("/", "legacy", filepath.Join(dir, "missing/csi")); !errors.Is(err, pool.ErrMissing) {
		t.Errorf("got %v, want ErrMissing", err)
	}
	for range 2 {
		p, err := pool.OpenOrMake("/", "legacy", filepath.Join(dir, "csi"))
		check(t, err)
		create(t, p, pool.Record{Name: "pvc-1", Capacity: 1 << 20}, nil)
		check(t, p.Close())
	}
}
