package importer_test

import (
	"archive/tar"
	"bytes"
	"encoding/pem"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"github.com/slipway-vm/slipway/importer"
	"github.com/slipway-vm/slipway/importer/source"
	"github.com/slipway-vm/slipway/internal/transfer"
)

// fault may answer a request in a registry's place; it returns whether it did.
type fault func(w http.ResponseWriter, r *http.Request, real http.Handler) bool

// registryServer is a registry with TLS.
type registryServer struct {
	*httptest.Server
	real  http.Handler
	fault atomic.Pointer[fault]
}

func serveRegistry(t *testing.T) *registryServer {
	t.Helper()
	s := &registryServer{real: registry.New(registry.Logger(log.New(io.Discard, "", 0)))}
	s.Server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if f := s.fault.Load(); f == nil || !(*f)(w, r, s.real) {
			s.real.ServeHTTP(w, r)
		}
	}))
	s.Config.ErrorLog = log.New(io.Discard, "", 0)
	s.StartTLS()
	t.Cleanup(s.Close)
	return s
}

// fail lets f answer from now on.
func (s *registryServer) fail(f fault) { s.fault.Store(&f) }

// url is the importer's address of an image.
func (s *registryServer) url(image string) string {
	return source.SchemeDocker + s.Listener.Addr().String() + "/" + image
}

// push puts an image into the registry, before anything fails.
func (s *registryServer) push(t *testing.T, image string, what remote.Taggable) {
	t.Helper()
	tag, err := name.NewTag(s.Listener.Addr().String() + "/" + image)
	if err != nil {
		t.Fatal(err)
	}
	with := remote.WithTransport(s.Client().Transport)
	if index, ok := what.(v1.ImageIndex); ok {
		err = remote.WriteIndex(tag, index, with)
	} else {
		err = remote.Write(tag, what.(v1.Image), with)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// pull imports an image, trusting the registry.
func (s *registryServer) pull(t *testing.T, image string, change func(*importer.Options)) imported {
	t.Helper()
	certificate := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw})
	dir := filepath.Dir(writeFile(t, "authority", certificate))
	return doImport(t, "", func(o *importer.Options) {
		o.Source = nil
		o.Registry = &source.RegistryOptions{URL: s.url(image), CertDir: dir, RetryFor: 5 * time.Minute, IdleTimeout: 5 * time.Minute}
		if change != nil {
			change(o)
		}
	})
}

// entry is an entry of a layer: a file when it has content, else what kind says.
type entry struct {
	name    string
	content []byte
	kind    byte
	link    string
}

func file(name string, content []byte) entry {
	return entry{name: name, content: content, kind: tar.TypeReg}
}
func folder(name string) entry { return entry{name: name, kind: tar.TypeDir} }

// layerOf makes a layer, packed by a program or not at all.
func layerOf(t *testing.T, packer []string, entries ...entry) v1.Layer {
	t.Helper()
	var buffer bytes.Buffer
	archive := tar.NewWriter(&buffer)
	for _, e := range entries {
		err := archive.WriteHeader(&tar.Header{Name: e.name, Size: int64(len(e.content)), Mode: 0o644, Typeflag: e.kind, Linkname: e.link})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := archive.Write(e.content); err != nil {
			t.Fatal(err)
		}
	}
	if err := archive.Close(); err != nil {
		t.Fatal(err)
	}
	if packer == nil {
		return static.NewLayer(buffer.Bytes(), types.OCIUncompressedLayer)
	}
	plain := writeFile(t, "layer.tar", buffer.Bytes())
	packed, err := os.ReadFile(pack(t, plain, plain+".packed", packer...))
	if err != nil {
		t.Fatal(err)
	}
	kind := types.OCILayer
	if packer[0] == "zstd" {
		kind = types.OCILayerZStd
	}
	return static.NewLayer(packed, kind)
}

// imageOf makes an image of layers, the lowest first.
func imageOf(t *testing.T, config v1.ConfigFile, layers ...v1.Layer) v1.Image {
	t.Helper()
	config.OS = "linux"
	image, err := mutate.ConfigFile(mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON), &config)
	if err != nil {
		t.Fatal(err)
	}
	for _, layer := range layers {
		if image, err = mutate.Append(image, mutate.Addendum{Layer: layer}); err != nil {
			t.Fatal(err)
		}
	}
	return image
}

func TestADiskOfAnImageInEveryForm(t *testing.T) {
	s := serveRegistry(t)
	disk := newDisk()
	raw := writeFile(t, "disk.raw", disk)
	read := func(path string) []byte {
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		return data
	}
	gz, zst := []string{"gzip", "-1c"}, []string{"zstd", "-qc"}
	for name, c := range map[string]struct {
		layer  v1.Layer
		format string
	}{
		"raw":                               {layerOf(t, nil, folder("disk/"), file("disk/disk.img", disk)), "raw"},
		"raw in a layer packed with gzip":   {layerOf(t, gz, file("./disk/disk.img", disk), file("etc/passwd", nil)), "raw"},
		"raw in a layer packed with zstd":   {layerOf(t, zst, file("/disk/disk.img", disk)), "raw"},
		"qcow2":                             {layerOf(t, nil, file("disk/a.qcow2", read(qcow2(t, raw, raw+".qcow2")))), "qcow2"},
		"qcow2 compressed, layer too":       {layerOf(t, gz, file("disk/a.qcow2", read(qcow2(t, raw, raw+".c.qcow2", "-c")))), "qcow2"},
		"raw packed, in a layer of its own": {layerOf(t, gz, file("disk/images/a.raw.xz", read(pack(t, raw, raw+".xz", "xz", "-1c")))), "raw+xz"},
	} {
		t.Run(name, func(t *testing.T) {
			s.push(t, "disk:v1", imageOf(t, v1.ConfigFile{}, c.layer))
			got := s.pull(t, "disk:v1", nil)
			got.wantDisk(t, disk, diskSize)
			if size, _ := c.layer.Size(); got.result.Downloaded != size {
				t.Errorf("%d bytes were downloaded of a layer of %d", got.result.Downloaded, size)
			}
			if got.result.Format != c.format {
				t.Errorf("the format is %q, want %q", got.result.Format, c.format)
			}
		})
	}
}

func TestTheDiskIsTheOneThatAFileSystemOfTheLayersShows(t *testing.T) {
	s := serveRegistry(t)
	// Disks that are told apart by their first byte.
	a, b := bytes.Repeat([]byte{1}, 64<<10), bytes.Repeat([]byte{2}, 64<<10)
	link := func(name string) entry { return entry{name: name, kind: tar.TypeSymlink, link: "/etc/shadow"} }
	for name, c := range map[string]struct {
		layers [][]entry // the lowest first
		want   []byte    // nil when there is none
		words  string
	}{
		"of one layer the first":            {[][]entry{{folder("disk"), file("disk/a", a), file("disk/b", b)}}, a, ""},
		"a file beside the folder is none":  {[][]entry{{file("disks/a", b), file("a", b), file("disk/a", a)}}, a, ""},
		"of two layers the higher":          {[][]entry{{file("disk/a", a)}, {file("disk/a", b)}}, b, ""},
		"a layer above without it":          {[][]entry{{file("disk/a", a)}, {folder("disk"), file("etc/passwd", b)}}, a, ""},
		"a file is taken away":              {[][]entry{{file("disk/a", a), file("disk/b", b)}, {file("disk/.wh.a", nil)}}, b, ""},
		"a file is taken away and put back": {[][]entry{{file("disk/a", a)}, {file("disk/.wh.a", nil), file("disk/a", b)}}, b, ""},
		"a folder is taken away":            {[][]entry{{file("disk/x/a", a), file("disk/y/b", b)}, {file("disk/.wh.x", nil)}}, b, ""},
		"all of it is taken away":           {[][]entry{{file("disk/a", a)}, {file(".wh.disk", nil)}}, nil, "no file below /disk"},
		"an opaque folder":                  {[][]entry{{file("disk/a", a)}, {file("disk/.wh..wh..opq", nil)}, {file("x", b)}}, nil, "no file below /disk"},
		"an opaque root":                    {[][]entry{{file("disk/a", a)}, {file(".wh..wh..opq", nil)}}, nil, "no file below /disk"},
		"a folder in the place of a file":   {[][]entry{{file("disk/a", a), file("disk/b", b)}, {folder("disk/a/")}}, b, ""},
		"a file in the place of the folder": {[][]entry{{file("disk/a", a)}, {file("disk", b)}}, nil, "no file below /disk"},
		"a link":                            {[][]entry{{link("disk/a")}}, nil, "/disk/a"},
		"a link in the place of the folder": {[][]entry{{file("disk/a", a)}, {link("disk")}}, nil, "is a link"},
		"a link beside the disk":            {[][]entry{{link("disk/0"), file("disk/a", a)}}, a, ""},
		"a name that leads out and in":      {[][]entry{{file("../../disk/a", a)}}, a, ""},
		"no layer":                          {nil, nil, "no file below /disk"},
	} {
		t.Run(name, func(t *testing.T) {
			var layers []v1.Layer
			for _, entries := range c.layers {
				layers = append(layers, layerOf(t, nil, entries...))
			}
			s.push(t, "disk:v1", imageOf(t, v1.ConfigFile{}, layers...))
			got := s.pull(t, "disk:v1", nil)
			if c.want == nil {
				got.wantFailure(t, transfer.WrongFormat, c.words)
				return
			}
			got.wantDisk(t, c.want, int64(len(c.want)))
		})
	}
}

func TestWhatAnImageSaysOfItself(t *testing.T) {
	s := serveRegistry(t)
	disk := newDisk()
	layer := layerOf(t, nil, file("disk/disk.img", disk))
	s.push(t, "disk:v1", imageOf(t, v1.ConfigFile{Architecture: "s390x", Config: v1.Config{Env: []string{
		"PATH=/bin", "INSTANCETYPE_KUBEVIRT_IO_DEFAULT_INSTANCETYPE=u1.small", "INSTANCETYPE_KUBEVIRT_IO_DEFAULT_PREFERENCE_KIND=VirtualMachinePreference",
		"KUBEVIRT_IO_FLAVOR=cloud", "KUBEVIRT_IO_BAD=no label", "KUBEVIRT_IO_=x", "INSTANCETYPE_KUBEVIRT_IO_OTHER=x",
	}}}, layer))
	got := s.pull(t, "disk:v1", nil)
	got.wantDisk(t, disk, diskSize)
	want := "map[instancetype.kubevirt.io/default-instancetype:u1.small instancetype.kubevirt.io/default-preference-kind:VirtualMachinePreference kubevirt.io/flavor:cloud]"
	if labels := fmt.Sprint(got.result.Labels); labels != want {
		t.Errorf("the labels are %s", labels)
	}
	of := func(architecture string) func(*importer.Options) {
		return func(o *importer.Options) { o.Registry.Architecture = architecture }
	}
	s.pull(t, "disk:v1", of("s390x")).wantDisk(t, disk, diskSize)
	s.pull(t, "disk:v1", of("arm64")).wantFailure(t, transfer.NotFound, "for architecture s390x, not arm64")

	for label, value := range map[string]string{"containers.bootc": "1", "ostree.bootable": "true"} {
		s.push(t, "boot:v1", imageOf(t, v1.ConfigFile{Config: v1.Config{Labels: map[string]string{label: value}}}, layer))
		s.pull(t, "boot:v1", nil).wantFailure(t, transfer.WrongFormat, label, "bootc-image-builder")
	}

	other := bytes.Repeat([]byte{7}, 1<<20)
	index := mutate.AppendManifests(mutate.IndexMediaType(empty.Index, types.OCIImageIndex),
		mutate.IndexAddendum{Add: imageOf(t, v1.ConfigFile{Architecture: "arm64"}, layerOf(t, nil, file("disk/disk.img", other))), Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: "linux", Architecture: "arm64"}}},
		mutate.IndexAddendum{Add: imageOf(t, v1.ConfigFile{Architecture: "amd64"}, layer), Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: "linux", Architecture: "amd64"}}},
	)
	s.push(t, "many:v1", index)
	s.pull(t, "many:v1", of("arm64")).wantDisk(t, other, 1<<20)
	s.pull(t, "many:v1", of("amd64")).wantDisk(t, disk, diskSize)
	s.pull(t, "many:v1", of("riscv64")).wantFailure(t, transfer.NotFound, "no image for architecture riscv64")
	digest, err := index.Digest()
	if err != nil {
		t.Fatal(err)
	}
	s.pull(t, "many@"+digest.String(), of("arm64")).wantDisk(t, other, 1<<20)
}
