package containerdisk

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
)

func TestALayerHoldsOneDiskOfQEMUs(t *testing.T) {
	disk := bytes.Repeat([]byte("disk"), 1<<20)
	write := func(w io.Writer) error { _, err := w.Write(disk); return err }
	var first, second bytes.Buffer
	layer, err := WriteLayer(&first, int64(len(disk)), write)
	if err != nil {
		t.Fatal(err)
	}
	again, err := WriteLayer(&second, int64(len(disk)), write)
	if err != nil || again != layer || !bytes.Equal(first.Bytes(), second.Bytes()) {
		t.Errorf("the same disk gave %v and %v (%v)", layer, again, err)
	}
	if hash, size, err := v1.SHA256(bytes.NewReader(first.Bytes())); err != nil || hash != layer.Digest || size != layer.Size {
		t.Errorf("digest %s and size %d of the layer, told %v (%v)", hash, size, layer, err)
	}
	unzipped, err := gzip.NewReader(&first)
	if err != nil {
		t.Fatal(err)
	}
	content, err := io.ReadAll(unzipped)
	if err != nil {
		t.Fatal(err)
	}
	if hash, _, err := v1.SHA256(bytes.NewReader(content)); err != nil || hash != layer.DiffID {
		t.Errorf("digest %s of the archive, told %s (%v)", hash, layer.DiffID, err)
	}
	archive := tar.NewReader(bytes.NewReader(content))
	var names []string
	for {
		header, err := archive.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		names = append(names, header.Name)
		if header.Uid != 107 || header.Gid != 107 {
			t.Errorf("%s belongs to %d:%d", header.Name, header.Uid, header.Gid)
		}
		if header.Typeflag == tar.TypeReg {
			if data, err := io.ReadAll(archive); err != nil || !bytes.Equal(data, disk) {
				t.Errorf("the disk in the layer is another (%v)", err)
			}
		}
	}
	if !slices.Equal(names, []string{"disk/", "disk/disk.qcow2"}) {
		t.Errorf("the layer holds %v", names)
	}
}

func TestAFailureOfTheDiskEndsTheLayer(t *testing.T) {
	broken := errors.New("medium error")
	if _, err := WriteLayer(io.Discard, 10, func(io.Writer) error { return broken }); !errors.Is(err, broken) {
		t.Errorf("ended with %v", err)
	}
	if _, err := WriteLayer(io.Discard, 10, func(w io.Writer) error { _, err := w.Write([]byte("short")); return err }); err == nil {
		t.Error("a disk that ended early was taken")
	}
}

func TestTheConfigCarriesTheDefaultsOfTheClaim(t *testing.T) {
	sum := v1.Hash{Algorithm: "sha256", Hex: strings.Repeat("0", 64)}
	image := Image{Layer: Layer{Blob: Blob{Digest: sum, Size: 1}, DiffID: sum}, Architecture: "amd64", Labels: map[string]string{
		"instancetype.kubevirt.io/default-instancetype": "u1.small", "instancetype.kubevirt.io/default-preference-kind": "VirtualMachinePreference",
		"instancetype.kubevirt.io/default-preference": "debian", "app": "x",
	}}
	config, err := image.Config()
	if err != nil {
		t.Fatal(err)
	}
	parsed, err := v1.ParseConfigFile(bytes.NewReader(config))
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		"INSTANCETYPE_KUBEVIRT_IO_DEFAULT_INSTANCETYPE=u1.small", "INSTANCETYPE_KUBEVIRT_IO_DEFAULT_PREFERENCE=debian",
		"INSTANCETYPE_KUBEVIRT_IO_DEFAULT_PREFERENCE_KIND=VirtualMachinePreference",
	}
	if !slices.Equal(parsed.Config.Env, want) || parsed.Architecture != "amd64" || parsed.OS != "linux" {
		t.Errorf("config %s", config)
	}
	manifest, err := image.Manifest(config)
	if err != nil {
		t.Fatal(err)
	}
	hash, size, err := v1.SHA256(bytes.NewReader(config))
	if err != nil {
		t.Fatal(err)
	}
	got, err := v1.ParseManifest(strings.NewReader(string(manifest)))
	if err != nil || got.Config.Digest != hash || got.Config.Size != size || len(got.Layers) != 1 {
		t.Errorf("manifest %s (%v)", manifest, err)
	}
}
