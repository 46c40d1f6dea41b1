package importer_test

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/slipway-vm/slipway/importer"
)

// A raw disk of any size is whole; a disk has whole sectors, and zeros are in what is left of the last one.
func TestRawDisksOfOddSizes(t *testing.T) {
	for name, size := range map[string]int{"a byte": 1, "a sector less a byte": 511, "a block and a byte": 1<<20 + 1, "most of the disk": diskSize - 1} {
		t.Run(name, func(t *testing.T) {
			disk := newDisk()[:size]
			disk[0] = 0 // no text
			eachServer(t, writeFile(t, "disk.raw", disk), func(t *testing.T, got imported) {
				got.wantDisk(t, disk, int64(size+511)/512*512)
				if got.result.VirtualSize != int64(size) {
					t.Errorf("virtual size %d, want %d", got.result.VirtualSize, size)
				}
			})
		})
	}
}

// pieces notes the longest read that it is asked for.
type pieces struct {
	io.Reader

	most int
}

func (a *pieces) Read(p []byte) (int, error) {
	a.most = max(a.most, len(p))
	return a.Reader.Read(p)
}

// What somebody sends goes to where it is written from, past the buffer in which it is looked at.
func TestARawDiskIsReadInLargePieces(t *testing.T) {
	disk := newDisk()
	stream := &pieces{Reader: bytes.NewReader(disk)}
	got := doImport(t, "", func(o *importer.Options) {
		o.Source, o.Stream = nil, &importer.Stream{Reader: stream, Size: int64(len(disk))}
	})
	got.wantDisk(t, disk, int64(len(disk)))
	if stream.most < 512<<10 {
		t.Errorf("at most %d bytes were asked for at a time", stream.most)
	}
}

func TestAnISO(t *testing.T) {
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "files"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "files", "setup.bin"), newDisk()[:3<<20+5], 0o600); err != nil {
		t.Fatal(err)
	}
	iso := filepath.Join(dir, "media.iso")
	run(t, "genisoimage", "-quiet", "-J", "-R", "-V", "MEDIA", "-o", iso, filepath.Join(dir, "files"))
	want := readFile(t, iso)
	for _, file := range []string{iso, pack(t, iso, iso+".gz", "gzip", "-c")} {
		eachServer(t, file, func(t *testing.T, got imported) { got.wantDisk(t, want, int64(len(want))) })
	}
}
