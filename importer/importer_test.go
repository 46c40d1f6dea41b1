package importer_test

import (
	"bytes"
	"context"
	"crypto/md5"
	"crypto/sha256"
	"crypto/sha512"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/slipway-vm/slipway/importer"
	"github.com/slipway-vm/slipway/internal/digest"
	"github.com/slipway-vm/slipway/internal/transfer"
)

func digestOf(t *testing.T, disk []byte) string {
	t.Helper()
	d, err := digest.Of(context.Background(), bytes.NewReader(disk), int64(len(disk)), 2)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func TestEveryFormatFromEveryKindOfServer(t *testing.T) {
	disk := newDisk()
	dir := t.TempDir()
	raw := filepath.Join(dir, "disk.raw")
	if err := os.WriteFile(raw, disk, 0o600); err != nil {
		t.Fatal(err)
	}
	at := func(name string) string { return filepath.Join(dir, name) }
	plain := qcow2(t, raw, at("plain.qcow2"))
	files := map[string]string{
		"raw":                                raw,
		"qcow2":                              plain,
		"qcow2 of version 2":                 qcow2(t, raw, at("v2.qcow2"), "-o", "compat=0.10"),
		"qcow2 compressed with zlib":         qcow2(t, raw, at("zlib.qcow2"), "-c"),
		"qcow2 compressed with zstd":         qcow2(t, raw, at("zstd.qcow2"), "-c", "-o", "compression_type=zstd"),
		"qcow2 with clusters of 512 bytes":   qcow2(t, raw, at("small.qcow2"), "-o", "cluster_size=512"),
		"qcow2 with clusters of 2 MiB":       qcow2(t, raw, at("large.qcow2"), "-o", "cluster_size=2M"),
		"qcow2, large compressed clusters":   qcow2(t, raw, at("largec.qcow2"), "-c", "-o", "cluster_size=2M"),
		"qcow2 with subclusters":             qcow2(t, raw, at("sub.qcow2"), "-o", "extended_l2=on,cluster_size=128k"),
		"qcow2 with preallocated metadata":   qcow2(t, raw, at("pre.qcow2"), "-o", "preallocation=metadata"),
		"qcow2 written in no order":          qcow2(t, raw, at("order.qcow2"), "-W", "-m", "16"),
		"raw packed with gzip":               pack(t, raw, at("raw.gz"), "gzip", "-c"),
		"raw packed with xz":                 pack(t, raw, at("raw.xz"), "xz", "-c", "-T1"),
		"raw packed with xz in blocks":       pack(t, raw, at("blocks.xz"), "xz", "-c", "-T2", "--block-size=4MiB"),
		"raw packed with xz -9":              pack(t, raw, at("raw9.xz"), "xz", "-9c", "-T1", "--check=sha256"),
		"raw packed with zstd":               pack(t, raw, at("raw.zst"), "zstd", "-qc"),
		"raw packed with pzstd":              pack(t, raw, at("raw.pzst"), "pzstd", "-qc"), // begins with a frame that is passed over
		"qcow2 packed with gzip":             pack(t, plain, at("qcow2.gz"), "gzip", "-c"),
		"qcow2 packed with xz":               pack(t, plain, at("qcow2.xz"), "xz", "-c"),
		"qcow2 packed with zstd":             pack(t, plain, at("qcow2.zst"), "zstd", "-qc"),
		"two gzip members one after another": twice(t, raw, at("two.gz")),
	}
	for name, file := range files {
		t.Run(name, func(t *testing.T) {
			eachServer(t, file, func(t *testing.T, got imported) {
				got.wantDisk(t, disk, diskSize)
				if got.result.VirtualSize != diskSize {
					t.Errorf("virtual size %d, want %d", got.result.VirtualSize, diskSize)
				}
			})
		})
	}
}

// twice packs a file in two members.
func twice(t *testing.T, from, to string) string {
	t.Helper()
	data, err := os.ReadFile(from)
	if err != nil {
		t.Fatal(err)
	}
	var out []byte
	for n, half := range [][]byte{data[:len(data)/2], data[len(data)/2:]} {
		part := writeFile(t, "half", half)
		packed := pack(t, part, fmt.Sprintf("%s.%d", to, n), "gzip", "-c")
		member, err := os.ReadFile(packed)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, member...)
	}
	if err := os.WriteFile(to, out, 0o600); err != nil {
		t.Fatal(err)
	}
	return to
}

func TestADiskGrowsToTheSizeAskedFor(t *testing.T) {
	disk := newDisk()
	raw := writeFile(t, "disk.raw", disk)
	qcow := qcow2(t, raw, raw+".qcow2")
	s := serve(t, filepath.Dir(raw))
	for _, name := range []string{raw, qcow, pack(t, raw, raw+".gz", "gzip", "-c")} {
		got := doImport(t, s.URL+"/"+filepath.Base(name), func(o *importer.Options) { o.Target.Size = 64 << 20 })
		got.wantDisk(t, disk, 64<<20)
		if used := allocated(t, got.path); used > 8<<20 {
			t.Errorf("%s: %d bytes are used for a disk with 6 MiB of data", name, used)
		}
	}
}

func TestABlankDisk(t *testing.T) {
	got := doImport(t, "", func(o *importer.Options) { o.Source = nil; o.Target.Size = 5 << 20 })
	got.wantDisk(t, nil, 5<<20)
	if got.result.Format != "blank" {
		t.Errorf("format %q", got.result.Format)
	}
}

func TestAPreallocatedDiskHasAllItsSpace(t *testing.T) {
	raw := writeFile(t, "disk.raw", newDisk())
	packed := pack(t, raw, raw+".gz", "gzip", "-c")
	url := serve(t, filepath.Dir(raw)).URL + "/"
	for name, c := range map[string]struct {
		file       string
		size, want int64
	}{
		"an image": {raw, 32 << 20, 32 << 20}, "an image of its own size": {raw, 0, diskSize},
		"a stream": {packed, 32 << 20, 32 << 20}, "a stream whose end tells its size": {packed, 0, diskSize},
	} {
		t.Run(name, func(t *testing.T) {
			got := doImport(t, url+filepath.Base(c.file), func(o *importer.Options) { o.Target.Preallocate, o.Target.Size = true, c.size })
			got.wantDisk(t, newDisk(), c.want)
			if used := allocated(t, got.path); used < c.want {
				t.Errorf("only %d bytes are reserved", used)
			}
		})
	}
}

func TestChecksums(t *testing.T) {
	raw := writeFile(t, "disk.raw", newDisk())
	url := serve(t, filepath.Dir(raw)).URL + "/disk.raw"
	for _, good := range []string{
		fmt.Sprintf("md5:%x", md5.Sum(newDisk())), fmt.Sprintf("sha512:%x", sha512.Sum512(newDisk())),
		strings.ToUpper(fmt.Sprintf("sha256:%x", sha256.Sum256(newDisk()))),
	} {
		doImport(t, url, func(o *importer.Options) { o.Checksum = good }).wantDisk(t, newDisk(), diskSize)
	}
	wrong := fmt.Sprintf("sha256:%x", sha256.Sum256([]byte("another file")))
	doImport(t, url, func(o *importer.Options) { o.Checksum = wrong }).
		wantFailure(t, transfer.ChecksumMismatch, wrong, fmt.Sprintf("%x", sha256.Sum256(newDisk())))
	for _, bad := range []string{"sha256", "crc32:00", "sha256:00", "sha256:" + strings.Repeat("z", 64)} {
		doImport(t, url, func(o *importer.Options) { o.Checksum = bad }).wantFailure(t, transfer.BadRequest, bad)
	}
}

func TestEarlierRemainsAreOverwritten(t *testing.T) {
	raw := writeFile(t, "disk.raw", newDisk())
	url := serve(t, filepath.Dir(raw)).URL + "/disk.raw"
	doImport(t, url, func(o *importer.Options) {
		for _, suffix := range []string{".partial", ".scratch"} {
			if err := os.WriteFile(o.Target.Path+suffix, bytes.Repeat([]byte{7}, 30<<20), 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}).wantDisk(t, newDisk(), diskSize)
}

// What somebody may have put onto a volume before leads nowhere, and its room is the new disk's.
func TestWhatAVolumeHeldBeforeIsReplaced(t *testing.T) {
	raw := writeFile(t, "disk.raw", newDisk())
	url := serve(t, filepath.Dir(raw)).URL
	pack(t, qcow2(t, raw, raw+".qcow2"), raw+".qcow2.gz", "gzip", "-1c") // needs a scratch file
	mine := writeFile(t, "mine", []byte("not of the volume"))
	doImport(t, url+"/disk.raw", func(o *importer.Options) {
		if err := os.Symlink("/dev/null", o.Target.Path); err != nil {
			t.Fatal(err)
		}
	}).wantDisk(t, newDisk(), diskSize)
	for _, name := range []string{"disk.raw", "disk.raw.qcow2.gz"} {
		doImport(t, url+"/"+name, func(o *importer.Options) {
			for _, suffix := range []string{"", ".partial", ".scratch"} {
				if err := os.Symlink(mine, o.Target.Path+suffix); err != nil {
					t.Fatal(err)
				}
			}
		}).wantDisk(t, newDisk(), diskSize)
		if got, err := os.ReadFile(mine); err != nil || string(got) != "not of the volume" {
			t.Errorf("%s was written where a link leads: %d bytes, %v", name, len(got), err)
		}
	}
}
