package image

import (
	"archive/tar"
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"
	"time"
)

func sample(t *testing.T) Image {
	t.Helper()
	program := filepath.Join(t.TempDir(), "program")
	if err := os.WriteFile(program, []byte("#!/none\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Chtimes(program, time.Now(), time.Now()); err != nil {
		t.Fatal(err)
	}
	return Image{
		Ref: "registry.local/sample:1",
		Files: []File{
			{Path: "/usr/bin/program", Source: program, Mode: 0o755},
			{Path: "/bin/sh", Link: "../usr/bin/program"},
			{Path: "/tmp/.keep", Mode: 0o644},
		},
		Entrypoint: []string{"/usr/bin/program"}, User: "65532",
	}
}

func write(t *testing.T, img Image) string {
	t.Helper()
	target := filepath.Join(t.TempDir(), "images", "sample.tar")
	if err := img.Write(target); err != nil {
		t.Fatal(err)
	}
	return target
}

func TestSameFilesGiveTheSameArchive(t *testing.T) {
	first, err := os.ReadFile(write(t, sample(t)))
	if err != nil {
		t.Fatal(err)
	}
	second, err := os.ReadFile(write(t, sample(t)))
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(first, second) {
		t.Error("two archives of the same files differ")
	}
}

func TestArchiveNamesItsImage(t *testing.T) {
	target := write(t, sample(t))
	named, err := Contents(target)
	if err != nil {
		t.Fatal(err)
	}
	if len(named) != 1 || named[0].Ref != "registry.local/sample:1" {
		t.Errorf("contents %v, want registry.local/sample:1", named)
	}
	blobs := entries(t, target)
	if _, ok := blobs[blobName(named[0].Digest)]; !ok {
		t.Errorf("the archive lacks the manifest %s", named[0].Digest)
	}
}

func TestLayerHoldsFoldersLinksAndModes(t *testing.T) {
	blobs := entries(t, write(t, sample(t)))
	var man manifest
	var index Index
	decode(t, blobs["index.json"], &index)
	decode(t, blobs[blobName(index.Manifests[0].Digest)], &man)
	layer := map[string]*tar.Header{}
	for tr := tar.NewReader(bytes.NewReader(blobs[blobName(man.Layers[0].Digest)])); ; {
		header, err := tr.Next()
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		layer[header.Name] = header
	}
	if h := layer["tmp/"]; h == nil || h.Mode != 0o1777 {
		t.Errorf("tmp/ is %+v, want a folder that all may write to", h)
	}
	if h := layer["bin/sh"]; h == nil || h.Linkname != "../usr/bin/program" {
		t.Errorf("bin/sh is %+v, want a link", h)
	}
	if h := layer["usr/bin/program"]; h == nil || h.Mode != 0o755 || h.ModTime.Unix() != 0 {
		t.Errorf("usr/bin/program is %+v, want mode 0755 of the year 1970", h)
	}
}

func TestTagChangesWithTheDescription(t *testing.T) {
	img := sample(t)
	before := img.Tag("content")
	if img.Tag("other") == before {
		t.Error("the content changed and the tag did not")
	}
	img.User = ""
	if img.Tag("content") == before {
		t.Error("the user changed and the tag did not")
	}
}

func TestStreamNamesImagesForContainerd(t *testing.T) {
	index := `{"schemaVersion":2,"manifests":[{"mediaType":"m","digest":"sha256:aa","size":1,"platform":{"os":"linux"},"annotations":{"org.opencontainers.image.ref.name":"registry.local/x:1"}}]}`
	target := filepath.Join(t.TempDir(), "other.tar")
	f, err := os.Create(target)
	if err != nil {
		t.Fatal(err)
	}
	tw := tar.NewWriter(f)
	for _, e := range []struct{ name, data string }{{"./oci-layout", "{}"}, {"./index.json", index}} {
		if err := writeEntry(tw, tar.Header{Name: e.name, Size: int64(len(e.data))}, bytes.NewReader([]byte(e.data))); err != nil {
			t.Fatal(err)
		}
	}
	if err := tw.Close(); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	if err := Stream(&out, target); err != nil {
		t.Fatal(err)
	}
	copied := filepath.Join(t.TempDir(), "copied.tar")
	if err := os.WriteFile(copied, out.Bytes(), 0o644); err != nil {
		t.Fatal(err)
	}
	var got struct {
		Manifests []struct {
			Annotations map[string]string
			Platform    map[string]string
		}
	}
	decode(t, entries(t, copied)["./index.json"], &got)
	if m := got.Manifests[0]; m.Annotations[NameAnnotation] != "registry.local/x:1" || m.Platform["os"] != "linux" {
		t.Errorf("index entry %+v, want containerd's name and all that was there", m)
	}
}

func TestContentsOfWhatIsNoArchive(t *testing.T) {
	target := filepath.Join(t.TempDir(), "text")
	if err := os.WriteFile(target, []byte("hello"), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := Contents(target); err == nil {
		t.Error("a text passed for an image archive")
	}
}

func entries(t *testing.T, file string) map[string][]byte {
	t.Helper()
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	found := map[string][]byte{}
	for tr := tar.NewReader(f); ; {
		header, err := tr.Next()
		if errors.Is(err, io.EOF) {
			return found
		}
		if err != nil {
			t.Fatal(err)
		}
		if found[header.Name], err = io.ReadAll(tr); err != nil {
			t.Fatal(err)
		}
	}
}

func decode(t *testing.T, data []byte, into any) {
	t.Helper()
	if err := json.Unmarshal(data, into); err != nil {
		t.Fatalf("decoding %q: %v", data, err)
	}
}
