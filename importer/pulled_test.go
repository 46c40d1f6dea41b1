package importer_test

import (
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/slipway-vm/slipway/importer"
	"github.com/slipway-vm/slipway/importer/source"
	"github.com/slipway-vm/slipway/internal/transfer"
)

const pulledURL = "docker://registry.example.com/team/disk:v1"

// fromPulled imports the disk of an image whose files, by their paths, the node has put into a folder.
func fromPulled(t *testing.T, files map[string][]byte, change func(root string)) imported {
	t.Helper()
	root := t.TempDir()
	for name, data := range files {
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o750); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if change != nil {
		change(root)
	}
	return doImport(t, "", func(o *importer.Options) {
		o.Source = nil
		o.Pulled = &source.PulledOptions{URL: pulledURL, Root: root, Environment: []string{"PATH=/bin", "INSTANCETYPE_KUBEVIRT_IO_DEFAULT_PREFERENCE=debian"}}
	})
}

func TestADiskOfAPulledImageInEveryForm(t *testing.T) {
	disk := newDisk()
	raw := writeFile(t, "disk.raw", disk)
	folder := filepath.Dir(raw)
	for name, c := range map[string]struct{ path, name, format string }{
		"raw":              {raw, "disk.img", "raw"},
		"qcow2":            {qcow2(t, raw, raw+".qcow2"), "debian", "qcow2"},
		"compressed qcow2": {qcow2(t, raw, raw+".c.qcow2", "-c"), "images/debian.qcow2", "qcow2"},
		"raw packed":       {pack(t, raw, raw+".xz", "xz", "-1c"), "debian.raw.xz", "raw+xz"},
		"raw in a tar":     {pack(t, raw, raw+".tar", "tar", "-cC", folder, filepath.Base(raw)), "debian.tar", "raw+tar"},
	} {
		t.Run(name, func(t *testing.T) {
			data, err := os.ReadFile(c.path)
			if err != nil {
				t.Fatal(err)
			}
			got := fromPulled(t, map[string][]byte{"disk/" + c.name: data, "disk/.hidden": {1}, "etc/passwd": {1}}, nil)
			got.wantDisk(t, disk, diskSize)
			if got.result.Format != c.format {
				t.Errorf("the format is %q, want %q", got.result.Format, c.format)
			}
			if got.result.Labels["instancetype.kubevirt.io/default-preference"] != "debian" {
				t.Errorf("the labels are %v", got.result.Labels)
			}
			if got.result.Downloaded < int64(len(data))/2 {
				t.Errorf("%d bytes were read of %d", got.result.Downloaded, len(data))
			}
		})
	}
}

func TestAPulledImageWithoutADiskIsRefused(t *testing.T) {
	disk := newDisk()
	link := func(to, name string) func(string) {
		return func(root string) {
			if err := os.Symlink(to, filepath.Join(root, name)); err != nil {
				t.Fatal(err)
			}
		}
	}
	for name, c := range map[string]struct {
		files  map[string][]byte
		change func(string)
		words  []string
	}{
		"nothing below /disk":   {map[string][]byte{"boot/disk.img": disk}, nil, []string{pulledURL, "no file below /disk"}},
		"a file named disk":     {map[string][]byte{"disk": disk}, nil, []string{"no file below /disk"}},
		"several files":         {map[string][]byte{"disk/a.img": disk, "disk/b.img": disk}, nil, []string{"disk/a.img, disk/b.img", "keep one"}},
		"an empty file":         {map[string][]byte{"disk/a.img": nil}, nil, []string{"/disk/a.img", "empty"}},
		"a link for the disk":   {map[string][]byte{"a.img": disk, "disk/.keep": nil}, link("../a.img", "disk/a.img"), []string{"/disk/a.img", "link"}},
		"a link for the folder": {map[string][]byte{"images/a.img": disk}, link("images", "disk"), []string{"no file below /disk"}},
		"a pipe": {map[string][]byte{"disk/.keep": nil}, func(root string) {
			if err := unix.Mkfifo(filepath.Join(root, "disk/a.img"), 0o600); err != nil {
				t.Fatal(err)
			}
		}, []string{"/disk/a.img", "device"}},
	} {
		t.Run(name, func(t *testing.T) {
			fromPulled(t, c.files, c.change).wantFailure(t, transfer.WrongFormat, c.words...)
		})
	}
}

func TestAPulledImageAsThePodIsTold(t *testing.T) {
	root := t.TempDir()
	if err := os.Mkdir(filepath.Join(root, "disk"), 0o750); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(root, "disk", "a.img"), newDisk(), 0o600); err != nil {
		t.Fatal(err)
	}
	told := func(change func(*importer.PodOptions)) transfer.Result {
		return importedByPod(t, func(o *importer.PodOptions) {
			o.URL, o.ImageRoot = pulledURL, root
			if change != nil {
				change(o)
			}
		})
	}
	if result := told(nil); result.Digest != digestOf(t, newDisk()) {
		t.Errorf("the disk is another one: %+v", result)
	}
	if result := told(func(o *importer.PodOptions) { o.URL = "imagestream:disk" }); result.Digest != digestOf(t, newDisk()) {
		t.Errorf("the disk of a stream is another one: %+v", result)
	}
	for name, change := range map[string]func(*importer.PodOptions){
		"a file":           func(o *importer.PodOptions) { o.URL = "https://example.com/disk.img" },
		"an archive":       func(o *importer.PodOptions) { o.Archive = true },
		"a checksum":       func(o *importer.PodOptions) { o.Checksum = "sha256:00" },
		"another registry": func(o *importer.PodOptions) { o.From = []string{pulledURL} },
		"authorities":      func(o *importer.PodOptions) { o.CertDir = root },
		"credentials":      func(o *importer.PodOptions) { o.CredentialsDir = root },
		"an architecture":  func(o *importer.PodOptions) { o.Architecture = "arm64" },
		"a limit":          func(o *importer.PodOptions) { o.BytesPerSecond = 1 << 20 },
	} {
		if result := told(change); result.Reason != transfer.BadRequest {
			t.Errorf("%s: %+v", name, result)
		}
	}
}
