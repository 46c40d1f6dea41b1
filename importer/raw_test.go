package importer_test

import (
	"os"
	"path/filepath"
	"testing"
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
