package bindmount_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/slipway-vm/slipway/runtime/hostpath/bindmount"
	"github.com/slipway-vm/slipway/tests/fixture/need"
)

func TestMountShowsADirectoryAndCanBeRepeated(t *testing.T) {
	source, target := volume(t), filepath.Join(t.TempDir(), "mount")
	for range 2 {
		check(t, bindmount.Mount(source, target, false))
	}
	check(t, os.WriteFile(filepath.Join(target, "written"), []byte("x"), 0o600))
	if _, err := os.Stat(filepath.Join(source.Name(), "written")); err != nil {
		t.Error("what was written at the target is not in the source")
	}
	for range 2 {
		check(t, bindmount.Unmount(target))
	}
	if _, err := os.Stat(target); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the target is left: %v", err)
	}
}

func TestMountIsReadOnlyWhenAsked(t *testing.T) {
	source, target := volume(t), filepath.Join(t.TempDir(), "mount")
	check(t, bindmount.Mount(source, target, true))
	defer func() { _ = bindmount.Unmount(target) }()
	if err := os.WriteFile(filepath.Join(target, "x"), nil, 0o600); !errors.Is(err, unix.EROFS) {
		t.Errorf("writing gives %v, want EROFS", err)
	}
	check(t, os.WriteFile(filepath.Join(source.Name(), "x"), nil, 0o600))
	check(t, bindmount.Mount(source, target, false))
	check(t, os.WriteFile(filepath.Join(target, "x"), nil, 0o600))
}

func TestAnotherMountInThePlaceGivesWay(t *testing.T) {
	first, second, target := volume(t), volume(t), filepath.Join(t.TempDir(), "mount")
	check(t, bindmount.Mount(first, target, false))
	check(t, bindmount.Mount(second, target, false))
	defer func() { _ = bindmount.Unmount(target) }()
	check(t, os.WriteFile(filepath.Join(second.Name(), "here"), nil, 0o600))
	if _, err := os.Stat(filepath.Join(target, "here")); err != nil {
		t.Error("the first mount is still there")
	}
	check(t, bindmount.Unmount(target))
}

func TestABusyMountIsTakenAway(t *testing.T) {
	source, target := volume(t), filepath.Join(t.TempDir(), "mount")
	check(t, bindmount.Mount(source, target, false))
	user, err := os.Create(filepath.Join(target, "open"))
	check(t, err)
	defer user.Close()
	check(t, bindmount.Unmount(target))
}

func TestMountRefusesASymbolicLink(t *testing.T) {
	source, dir := volume(t), t.TempDir()
	target := filepath.Join(dir, "mount")
	check(t, os.Symlink("/tmp", target))
	if err := bindmount.Mount(source, target, false); err == nil {
		t.Error("mounted through a symbolic link")
	}
}

func volume(t *testing.T) *os.File {
	t.Helper()
	need.Root(t, "mount")
	dir, err := os.Open(t.TempDir())
	check(t, err)
	t.Cleanup(func() { check(t, dir.Close()) })
	return dir
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
