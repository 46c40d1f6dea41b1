package reflink_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/slipway-vm/slipway/runtime/hostpath/reflink"
)

func TestTreeCopiesEveryKindOfFile(t *testing.T) {
	src, dst := t.TempDir(), t.TempDir()
	write(t, src, "disk.img", "guest data")
	write(t, src, "a/b/deep", "deep")
	check(t, os.Link(filepath.Join(src, "disk.img"), filepath.Join(src, "a/hard")))
	check(t, os.Symlink("/etc/passwd", filepath.Join(src, "outside")))
	check(t, os.Symlink("../..", filepath.Join(src, "a/up")))
	check(t, unix.Mkfifo(filepath.Join(src, "pipe"), 0o640))
	check(t, os.Chmod(filepath.Join(src, "disk.img"), 0o640))
	if os.Geteuid() == 0 {
		check(t, os.Chown(filepath.Join(src, "a"), 107, 107))
	}

	result := copyTree(t, dst, src)

	if got := read(t, dst, "a/b/deep"); got != "deep" {
		t.Errorf("a/b/deep holds %q", got)
	}
	if got := read(t, dst, "a/hard"); got != "guest data" {
		t.Errorf("a/hard holds %q", got)
	}
	one, two := stat(t, dst, "disk.img"), stat(t, dst, "a/hard")
	if one.Ino != two.Ino {
		t.Error("the hard link became a file of its own")
	}
	if one.Mode&0o777 != 0o640 {
		t.Errorf("the mode became %o", one.Mode&0o777)
	}
	if target, err := os.Readlink(filepath.Join(dst, "outside")); err != nil || target != "/etc/passwd" {
		t.Errorf("the link points to %q, %v", target, err)
	}
	if stat(t, dst, "pipe").Mode&unix.S_IFMT != unix.S_IFIFO {
		t.Error("the pipe is not a pipe")
	}
	if want, got := stat(t, src, "a"), stat(t, dst, "a"); want.Uid != got.Uid || want.Mtim.Sec != got.Mtim.Sec {
		t.Errorf("directory a has owner %d and time %d, want %d and %d", got.Uid, got.Mtim.Sec, want.Uid, want.Mtim.Sec)
	}
	if result.Shared+result.Copied != 2 {
		t.Errorf("%+v, want 2 files", result)
	}
}

func TestTreeKeepsHolesAsHoles(t *testing.T) {
	src, dst := t.TempDir(), t.TempDir()
	file, err := os.Create(filepath.Join(src, "disk.img"))
	check(t, err)
	check(t, file.Truncate(1<<30))
	_, err = file.WriteAt([]byte("in the middle"), 512<<20)
	check(t, err)
	check(t, file.Close())

	copyTree(t, dst, src)

	info := stat(t, dst, "disk.img")
	if info.Size != 1<<30 || info.Blocks*512 > 1<<20 {
		t.Errorf("size %d, %d bytes on disk; want 1 GiB, next to nothing", info.Size, info.Blocks*512)
	}
	copied, err := os.Open(filepath.Join(dst, "disk.img"))
	check(t, err)
	defer copied.Close()
	data := make([]byte, 13)
	_, err = copied.ReadAt(data, 512<<20)
	if check(t, err); string(data) != "in the middle" {
		t.Errorf("the middle holds %q", data)
	}
}

func TestTreeStopsWhenItsContextEnds(t *testing.T) {
	src, dst := t.TempDir(), t.TempDir()
	write(t, src, "file", "x")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := reflink.Tree(ctx, root(t, dst), root(t, src), nil); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want context.Canceled", err)
	}
}

func copyTree(t *testing.T, dst, src string) reflink.Result {
	t.Helper()
	result, err := reflink.Tree(t.Context(), root(t, dst), root(t, src), nil)
	check(t, err)
	return result
}

func root(t *testing.T, dir string) *os.Root {
	t.Helper()
	r, err := os.OpenRoot(dir)
	check(t, err)
	t.Cleanup(func() { check(t, r.Close()) })
	return r
}

func write(t *testing.T, dir, name, content string) {
	t.Helper()
	path := filepath.Join(dir, name)
	check(t, os.MkdirAll(filepath.Dir(path), 0o755))
	check(t, os.WriteFile(path, []byte(content), 0o644))
}

func read(t *testing.T, dir, name string) string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(dir, name))
	check(t, err)
	return string(data)
}

func stat(t *testing.T, dir, name string) unix.Stat_t {
	t.Helper()
	var info unix.Stat_t
	check(t, unix.Lstat(filepath.Join(dir, name), &info))
	return info
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
