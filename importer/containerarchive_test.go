package importer_test

import (
	"archive/tar"
	"bytes"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"

	"github.com/slipway-vm/slipway/internal/transfer"
)

// archived writes the layout of images as an archive of skopeo's, or with its members the other way round, and returns its folder's server.
// Change may spoil a file of the layout.
func archived(t *testing.T, backwards bool, change func(path string), images ...v1.Image) *server {
	t.Helper()
	dir, served := t.TempDir(), t.TempDir()
	to, err := layout.Write(dir, empty.Index)
	must(t, err)
	for _, image := range images {
		must(t, to.AppendImage(image))
	}
	var names []string
	must(t, filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err == nil && path != dir {
			names = append(names, path)
			if change != nil && entry.Type().IsRegular() {
				change(path)
			}
		}
		return err
	}))
	if backwards { // as other programs have it: docker puts oci-layout first
		slices.Reverse(names)
	}
	var buffer bytes.Buffer
	archive := tar.NewWriter(&buffer)
	for _, path := range names {
		info, err := os.Stat(path)
		must(t, err)
		header, err := tar.FileInfoHeader(info, "")
		must(t, err)
		name, err := filepath.Rel(dir, path)
		must(t, err)
		header.Name = "./" + name
		must(t, archive.WriteHeader(header))
		if info.Mode().IsRegular() {
			data, err := os.ReadFile(path)
			must(t, err)
			_, err = archive.Write(data)
			must(t, err)
		}
	}
	must(t, archive.Close())
	must(t, os.WriteFile(filepath.Join(served, "image.tar"), buffer.Bytes(), 0o600))
	return serve(t, served)
}

func TestADiskOfAnArchivedContainerImage(t *testing.T) {
	for name, packer := range map[string][]string{"packed by nothing": nil, "packed by gzip": {"gzip", "-c"}, "packed by zstd": {"zstd", "-c"}} {
		for _, backwards := range []bool{false, true} {
			system := layerOf(t, nil, folder("etc"), file("etc/motd", []byte("hello")))
			image := imageOf(t, v1.ConfigFile{Architecture: "amd64"}, system, layerOf(t, packer, folder("disk"), file("disk/disk.img", newDisk())))
			for _, noRanges := range []bool{false, true} {
				t.Run(name, func(t *testing.T) {
					s := archived(t, backwards, nil, image)
					s.noRanges = noRanges
					doImport(t, s.URL+"/image.tar", nil).wantDisk(t, newDisk(), diskSize)
				})
			}
		}
	}
}

func TestAnArchivedContainerImageThatIsNoDisk(t *testing.T) {
	disk := layerOf(t, nil, file("disk/disk.img", newDisk()))
	system := layerOf(t, []string{"gzip", "-c"}, file("etc/motd", []byte("hello")))
	for name, c := range map[string]struct {
		images []v1.Image
		change func(path string)
		reason transfer.Reason
		words  string
	}{
		"no disk":        {[]v1.Image{imageOf(t, v1.ConfigFile{}, system)}, nil, transfer.WrongFormat, "no file below /disk"},
		"two disks":      {[]v1.Image{imageOf(t, v1.ConfigFile{}, disk, layerOf(t, nil, file("disk/other.img", newDisk())))}, nil, transfer.WrongFormat, "more than one layer"},
		"a disk gone":    {[]v1.Image{imageOf(t, v1.ConfigFile{}, disk, layerOf(t, nil, file("disk/.wh.disk.img", nil)))}, nil, transfer.WrongFormat, "more than one layer"},
		"all disks gone": {[]v1.Image{imageOf(t, v1.ConfigFile{}, disk, layerOf(t, nil, file(".wh.disk", nil)))}, nil, transfer.WrongFormat, "more than one layer"},
		"two images": {[]v1.Image{imageOf(t, v1.ConfigFile{}, disk), imageOf(t, v1.ConfigFile{}, layerOf(t, nil, file("disk/arm.img", newDisk())))},
			nil, transfer.WrongFormat, "more than one layer"},
		"a link": {[]v1.Image{imageOf(t, v1.ConfigFile{}, layerOf(t, nil, entry{name: "disk/disk.img", kind: tar.TypeSymlink, link: "/etc/shadow"}))},
			nil, transfer.WrongFormat, "a link"},
		"a damaged layer": {[]v1.Image{imageOf(t, v1.ConfigFile{}, disk)}, func(path string) {
			data, err := os.ReadFile(path)
			must(t, err)
			if len(data) < len(newDisk())/2 {
				return
			}
			data[len(data)/2] ^= 1
			must(t, os.WriteFile(path, data, 0o600))
		}, transfer.ChecksumMismatch, "damaged"},
		"a layer cut short": {[]v1.Image{imageOf(t, v1.ConfigFile{}, layerOf(t, []string{"gzip", "-c"}, file("disk/disk.img", newDisk())))}, func(path string) {
			data, err := os.ReadFile(path)
			must(t, err)
			if strings.HasPrefix(string(data), "\x1f\x8b") {
				must(t, os.WriteFile(path, data[:len(data)/2], 0o600))
			}
		}, transfer.InvalidImage, "gz stream ends too early"},
	} {
		for _, noRanges := range []bool{false, true} {
			t.Run(name, func(t *testing.T) {
				s := archived(t, false, c.change, c.images...)
				s.noRanges = noRanges
				doImport(t, s.URL+"/image.tar", nil).wantFailure(t, c.reason, c.words)
			})
		}
	}
}
