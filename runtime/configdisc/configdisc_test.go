package configdisc_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	v1 "kubevirt.io/api/core/v1"

	"github.com/slipway-vm/slipway/runtime/configdisc"
)

// mounted is a folder as the kubelet makes it: files in a folder of its own, and links.
func mounted(t *testing.T, files map[string]fs.FileMode) string {
	t.Helper()
	dir := t.TempDir()
	data := filepath.Join(dir, "..2026_11_22")
	if err := os.Mkdir(data, 0o755); err != nil {
		t.Fatal(err)
	}
	link(t, "..2026_11_22", filepath.Join(dir, "..data"))
	for name, mode := range files {
		path := filepath.Join(data, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte("content of "+name), mode); err != nil {
			t.Fatal(err)
		}
		first := name
		for up := filepath.Dir(first); up != "."; up = filepath.Dir(up) {
			first = up
		}
		if _, err := os.Lstat(filepath.Join(dir, first)); err != nil {
			link(t, filepath.Join("..data", first), filepath.Join(dir, first))
		}
	}
	return dir
}

func link(t *testing.T, target, path string) {
	t.Helper()
	if err := os.Symlink(target, path); err != nil {
		t.Fatal(err)
	}
}

func TestFilesAreReadThroughTheKubeletsLinks(t *testing.T) {
	want := map[string]fs.FileMode{"token": 0o640, "labels": 0o644, "size/memory": 0o400, "size/cpu": 0o444}
	got, err := configdisc.Files(mounted(t, want))
	if err != nil || len(got) != len(want) {
		t.Fatalf("%v, %v", got, err)
	}
	for name, mode := range want {
		if string(got[name].Data) != "content of "+name || got[name].Mode != mode {
			t.Errorf("%s: %q, mode %o", name, got[name].Data, got[name].Mode)
		}
	}
}

func TestAnOptionalObjectThatIsNotThereHasNoFiles(t *testing.T) {
	if got, err := configdisc.Files(mounted(t, nil)); err != nil || len(got) > 0 {
		t.Errorf("%v, %v", got, err)
	}
}

func TestNothingIsReadFromElsewhere(t *testing.T) {
	dir := mounted(t, nil)
	outside := filepath.Join(t.TempDir(), "shadow")
	if err := os.WriteFile(outside, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	link(t, outside, filepath.Join(dir, "key"))
	if got, err := configdisc.Files(dir); err == nil {
		t.Errorf("read %v through a link that leads out", got)
	}
	if _, err := configdisc.Files(filepath.Join(dir, "nowhere")); err == nil {
		t.Error("a folder that does not exist was read")
	}
}

func TestOf(t *testing.T) {
	for name, c := range map[string]struct {
		source v1.VolumeSource
		label  string
		is     bool
	}{
		"a ConfigMap with a label": {v1.VolumeSource{ConfigMap: &v1.ConfigMapVolumeSource{VolumeLabel: "OEMDRV"}}, "OEMDRV", true},
		"a Secret without":         {v1.VolumeSource{Secret: &v1.SecretVolumeSource{}}, "cfgdata", true},
		"facts":                    {v1.VolumeSource{DownwardAPI: &v1.DownwardAPIVolumeSource{VolumeLabel: "facts"}}, "facts", true},
		"an account":               {v1.VolumeSource{ServiceAccount: &v1.ServiceAccountVolumeSource{}}, "cfgdata", true},
		"a disk":                   {v1.VolumeSource{EmptyDisk: &v1.EmptyDiskSource{}}, "cfgdata", false},
	} {
		label, is := configdisc.Of(&v1.Volume{VolumeSource: c.source})
		if label != c.label || is != c.is {
			t.Errorf("%s: %q, %v", name, label, is)
		}
	}
}
