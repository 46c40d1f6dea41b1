package sysprep_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/slipway-vm/slipway/runtime/sysprep"
	"github.com/slipway-vm/slipway/tests/fixture/need"
)

// mounted is a folder as the kubelet makes it of a ConfigMap with keys.
func mounted(t *testing.T, keys ...string) string {
	t.Helper()
	dir := t.TempDir()
	data := filepath.Join(dir, "..2026_11_21")
	if err := os.Mkdir(data, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("..2026_11_21", filepath.Join(dir, "..data")); err != nil {
		t.Fatal(err)
	}
	for _, key := range keys {
		if err := os.WriteFile(filepath.Join(data, key), []byte("content of "+key), 0o644); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(filepath.Join("..data", key), filepath.Join(dir, key)); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func TestFiles(t *testing.T) {
	for name, c := range map[string]struct {
		keys []string
		want string
	}{
		"for a new machine":       {[]string{"autounattend.xml"}, ""},
		"for a generalized disk":  {[]string{"unattend.xml", "customize.ps1"}, ""},
		"in another case":         {[]string{"Autounattend.xml", "UNATTEND.XML"}, ""},
		"nothing":                 {nil, "no key autounattend.xml or unattend.xml (in any case); it is empty"},
		"something else":          {[]string{"b.xml", "answers.xml"}, "it has answers.xml, b.xml: add the answer file"},
		"two that Windows merges": {[]string{"Unattend.xml", "unattend.xml"}, "keys Unattend.xml and unattend.xml differ in case only"},
	} {
		t.Run(name, func(t *testing.T) {
			files, err := sysprep.Files(mounted(t, c.keys...))
			if c.want != "" {
				if err == nil || !strings.Contains(err.Error(), c.want) {
					t.Fatalf("error %v, want one with %q", err, c.want)
				}
				return
			}
			if err != nil || len(files) != len(c.keys) {
				t.Fatalf("%v, %v", files, err)
			}
			for _, key := range c.keys {
				if got := string(files[key]); got != "content of "+key {
					t.Errorf("%s is %q", key, got)
				}
			}
		})
	}
	if _, err := sysprep.Files(filepath.Join(t.TempDir(), "nowhere")); err == nil {
		t.Error("a folder that does not exist was read")
	}
}

func TestTheDiscHasTheFilesUnderTheirNames(t *testing.T) {
	need.Program(t, "isoinfo", "genisoimage")
	path := filepath.Join(t.TempDir(), "answers.iso")
	files := map[string][]byte{
		"Autounattend.xml": []byte(strings.Repeat("<unattend/>\n", 9000)), "post-install.ps1": []byte("exit 0"), "installer-url.txt": []byte("https://x"),
	}
	if err := sysprep.WriteISO(path, files); err != nil {
		t.Fatal(err)
	}
	read := func(args ...string) string {
		out, err := exec.Command("isoinfo", append(args, "-i", path)...).Output()
		if err != nil {
			t.Fatalf("isoinfo %v: %v", args, err)
		}
		return string(out)
	}
	if header := read("-d"); !strings.Contains(header, "Volume id: "+sysprep.Label) {
		t.Errorf("the label is not %s:\n%s", sysprep.Label, header)
	}
	for _, names := range []string{"-R", "-J"} {
		for name, want := range files {
			if got := read(names, "-x", "/"+name); got != string(want) {
				t.Errorf("%s by %s has %d bytes, want %d", name, names, len(got), len(want))
			}
		}
	}
}
