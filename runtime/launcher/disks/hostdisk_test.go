package disks

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	v1 "kubevirt.io/api/core/v1"
)

func TestAFileOfTheNodeThatCannotBeUsedIsNamed(t *testing.T) {
	for name, c := range map[string]struct {
		make func(t *testing.T, path string)
		want string
	}{
		"nothing is there":  {want: "there is no file /data/vm.img on the node"},
		"a folder":          {func(t *testing.T, path string) { t.Helper(); write(t, filepath.Join(path, "x"), 1) }, "is no regular file"},
		"a link out of it":  {func(t *testing.T, path string) { t.Helper(); link(t, path) }, "is no regular file"},
		"a file of nothing": {func(t *testing.T, path string) { t.Helper(); write(t, path, 0) }, "is empty"},
	} {
		t.Run(name, func(t *testing.T) {
			paths := pod(t)
			if c.make != nil {
				c.make(t, filepath.Join(paths.Claims, "v", "vm.img"))
			}
			_, err := Prepare(paths, Request{VMI: vmi(map[string]v1.VolumeSource{"v": {HostDisk: &v1.HostDisk{Path: "/data/vm.img"}}})})
			if err == nil || !strings.Contains(err.Error(), "preparing volume v: ") || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), "/data/vm.img") {
				t.Errorf("got %v, want %q in it", err, c.want)
			}
		})
	}
}

func link(t *testing.T, path string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("/etc/passwd", path); err != nil {
		t.Fatal(err)
	}
}

// What other nodes see is never left in this one's page cache, where the user says nothing else.
func TestASharedFileOfTheNodeIsReadPastThePageCache(t *testing.T) {
	paths := pod(t)
	write(t, filepath.Join(paths.Claims, "v", "vm.img"), 4096)
	got, err := Prepare(paths, Request{VMI: vmi(map[string]v1.VolumeSource{"v": {HostDisk: &v1.HostDisk{Path: "/data/vm.img", Shared: new(true)}}})})
	if err != nil || !got["v"].DirectIO || got["v"].Shared {
		t.Errorf("%+v, %v", got, err)
	}
}
