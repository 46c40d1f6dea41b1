package importer_test

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/slipway-vm/slipway/importer"
	"github.com/slipway-vm/slipway/internal/transfer"
	"github.com/slipway-vm/slipway/tests/fixture/diskimage"
)

// convert makes an image of a raw file as qemu-img's options say.
func convert(t *testing.T, from, to string, options ...string) string {
	t.Helper()
	run(t, "qemu-img", append(append([]string{"convert", "-f", "raw", "-O"}, options...), from, to)...)
	return to
}

// back is the disk that qemu-img reads in an image.
func back(t *testing.T, format, path string) []byte {
	t.Helper()
	out := filepath.Join(t.TempDir(), "raw")
	run(t, "qemu-img", "convert", "-f", format, "-O", "raw", path, out)
	return readFile(t, out)
}

func readFile(t *testing.T, path string) []byte {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// otherImage is an image, and the name by which qemu-img reads it.
type otherImage struct{ path, format, want string }

// otherImages are images of a raw file in the formats of other hypervisors.
func otherImages(t *testing.T, raw string) map[string]otherImage {
	t.Helper()
	at := func(name string) string { return filepath.Join(filepath.Dir(raw), name) }
	stream := at("stream.vmdk")
	if err := os.WriteFile(stream, diskimage.StreamVMDK(readFile(t, raw), nil), 0o600); err != nil {
		t.Fatal(err)
	}
	snapshots := qcow2(t, raw, at("snapshots.qcow2"))
	run(t, "qemu-img", "snapshot", "-c", "before", snapshots)
	run(t, "qemu-io", "-f", "qcow2", "-c", "write -P 7 2M 300k", snapshots)
	run(t, "qemu-img", "snapshot", "-c", "after", snapshots)
	return map[string]otherImage{
		"vmdk":                        {convert(t, raw, at("1.vmdk"), "vmdk"), "vmdk", "vmdk"},
		"vmdk written in no order":    {convert(t, raw, at("2.vmdk"), "vmdk", "-W", "-m", "16"), "vmdk", "vmdk"},
		"vmdk with zeroed grains":     {convert(t, raw, at("3.vmdk"), "vmdk", "-o", "zeroed_grain=on"), "vmdk", "vmdk"},
		"vmdk, streamOptimized":       {convert(t, raw, at("4.vmdk"), "vmdk", "-o", "subformat=streamOptimized"), "vmdk", "vmdk"},
		"vmdk of an appliance":        {stream, "vmdk", "vmdk"},
		"vhd":                         {convert(t, raw, at("1.vhd"), "vpc"), "vpc", "vhd"},
		"vhd of the very size":        {convert(t, raw, at("2.vhd"), "vpc", "-o", "force_size=on"), "vpc", "vhd"},
		"vhd, fixed":                  {convert(t, raw, at("3.vhd"), "vpc", "-o", "subformat=fixed"), "vpc", "vhd"},
		"vhdx":                        {convert(t, raw, at("1.vhdx"), "vhdx"), "vhdx", "vhdx"},
		"vhdx with blocks of 1 MiB":   {convert(t, raw, at("2.vhdx"), "vhdx", "-o", "block_size=1M"), "vhdx", "vhdx"},
		"vhdx, fixed":                 {convert(t, raw, at("3.vhdx"), "vhdx", "-o", "subformat=fixed,block_size=2M"), "vhdx", "vhdx"},
		"vdi":                         {convert(t, raw, at("1.vdi"), "vdi"), "vdi", "vdi"},
		"vdi, static":                 {convert(t, raw, at("2.vdi"), "vdi", "-o", "static=on"), "vdi", "vdi"},
		"vdi written in no order":     {convert(t, raw, at("3.vdi"), "vdi", "-W", "-m", "16"), "vdi", "vdi"},
		"qcow2 with snapshots inside": {snapshots, "qcow2", "qcow2"},
	}
}

// eachServer imports path from servers with and without ranges, with and without a checksum.
func eachServer(t *testing.T, path string, check func(t *testing.T, got imported)) {
	t.Helper()
	sum := fmt.Sprintf("sha256:%x", sha256.Sum256(readFile(t, path)))
	for _, how := range []struct {
		name     string
		noRanges bool
		checksum string
	}{{"by ranges", false, ""}, {"by ranges with a checksum", false, sum}, {"as a stream", true, ""}, {"as a stream with a checksum", true, sum}} {
		t.Run(how.name, func(t *testing.T) {
			t.Parallel() // most of the time is the disk's
			s := serve(t, filepath.Dir(path))
			s.noRanges = how.noRanges
			check(t, doImport(t, s.URL+"/"+filepath.Base(path), func(o *importer.Options) { o.Checksum = how.checksum }))
		})
	}
}

func TestImagesOfOtherHypervisors(t *testing.T) {
	raw := writeFile(t, "disk.raw", newDisk())
	for name, c := range otherImages(t, raw) {
		t.Run(name, func(t *testing.T) {
			want := back(t, c.format, c.path)
			if c.format != "qcow2" && !bytes.Equal(want[:diskSize], newDisk()) {
				t.Fatal("qemu-img reads another disk in it than was written")
			}
			eachServer(t, c.path, func(t *testing.T, got imported) {
				got.wantDisk(t, want, int64(len(want)))
				if got.result.Format != c.want || got.result.VirtualSize != int64(len(want)) {
					t.Errorf("format %q of %d bytes, want %q of %d", got.result.Format, got.result.VirtualSize, c.want, len(want))
				}
			})
		})
	}
}

func TestDisksThatAreWrapped(t *testing.T) {
	disk := newDisk()
	raw := writeFile(t, "disk.raw", disk)
	at := func(name string) string { return filepath.Join(filepath.Dir(raw), name) }
	plain := qcow2(t, raw, at("plain.qcow2"))
	vdi := convert(t, raw, at("disk.vdi"), "vdi")
	fixed := convert(t, raw, at("fixed.vhd"), "vpc", "-o", "subformat=fixed,force_size=on")
	ova := func(name string, members ...diskimage.Member) string {
		all := append([]diskimage.Member{{Name: "box.ovf", Data: []byte("<Envelope/>")}}, members...)
		all = append(all, diskimage.Member{Name: "box.mf", Data: []byte("SHA256(box.ovf)= 00\n")}, diskimage.Member{Name: "box.nvram", Data: make([]byte, 4000)})
		return writeFile(t, name, diskimage.Tar(all...))
	}
	stream := diskimage.StreamVMDK(disk, nil)
	inTar := ova("box.ova", diskimage.Member{Name: "box-disk1.vmdk", Data: stream})
	holes, posix := at("holes.tar"), at("posix.tar")
	run(t, "tar", "-C", filepath.Dir(raw), "--format=oldgnu", "-Scf", holes, "disk.raw")
	run(t, "tar", "-C", filepath.Dir(raw), "--format=posix", "-Scf", posix, "disk.raw")
	for name, c := range map[string]struct{ path, format string }{
		"raw packed with bzip2":             {pack(t, raw, at("raw.bz2"), "bzip2", "-c"), "raw+bz2"},
		"qcow2 packed with bzip2":           {pack(t, plain, at("qcow2.bz2"), "bzip2", "-c"), "qcow2+bz2"},
		"vdi packed with zstd":              {pack(t, vdi, at("vdi.zst"), "zstd", "-qc"), "vdi+zst"},
		"vmdk packed with gzip":             {pack(t, writeFile(t, "s.vmdk", stream), at("vmdk.gz"), "gzip", "-c"), "vmdk+gz"},
		"fixed vhd packed with xz":          {pack(t, fixed, at("vhd.xz"), "xz", "-c"), "vhd+xz"},
		"an OVA":                            {inTar, "vmdk+tar"},
		"an OVA with a qcow2":               {ova("q.ova", diskimage.Member{Name: "../../q.img", Data: readFile(t, plain)}), "qcow2+tar"},
		"an OVA with a raw disk":            {ova("r.ova", diskimage.Member{Name: "disk", Data: disk}), "raw+tar"},
		"an OVA with a fixed vhd":           {ova("v.ova", diskimage.Member{Name: "disk.vhd", Data: readFile(t, fixed)}), "vhd+tar"},
		"an OVA with a packed disk":         {ova("p.ova", diskimage.Member{Name: "disk.gz", Data: readFile(t, pack(t, plain, at("p.gz"), "gzip", "-c"))}), "qcow2+gz+tar"},
		"an OVA packed with gzip":           {pack(t, inTar, at("ova.gz"), "gzip", "-c"), "vmdk+tar+gz"},
		"a tar archive with holes":          {holes, "raw+tar"},
		"a pax archive with holes":          {posix, "raw+tar"},
		"a tar archive with holes, in gzip": {pack(t, holes, at("holes.gz"), "gzip", "-c"), "raw+tar+gz"},
	} {
		t.Run(name, func(t *testing.T) {
			eachServer(t, c.path, func(t *testing.T, got imported) {
				got.wantDisk(t, disk, diskSize)
				if got.result.Format != c.format {
					t.Errorf("format %q, want %q", got.result.Format, c.format)
				}
			})
		})
	}
}

// TestAFixedVHDOfTheVolumesSize has a footer for which the volume has no room.
func TestAFixedVHDOfTheVolumesSize(t *testing.T) {
	raw := writeFile(t, "disk.raw", newDisk())
	fixed := convert(t, raw, raw+".vhd", "vpc", "-o", "subformat=fixed,force_size=on")
	s := serve(t, filepath.Dir(raw))
	for _, s.noRanges = range []bool{false, true} {
		doImport(t, s.URL+"/"+filepath.Base(fixed), func(o *importer.Options) { o.Target.Size = diskSize }).wantDisk(t, newDisk(), diskSize)
		doImport(t, s.URL+"/"+filepath.Base(fixed), func(o *importer.Options) { o.Target.Size = diskSize - 512 }).wantFailure(t, transfer.TooSmall)
		doImport(t, s.URL+"/"+filepath.Base(raw), func(o *importer.Options) { o.Target.Size = diskSize - 512 }).wantFailure(t, transfer.TooSmall)
	}
}

func TestImagesOfOtherHypervisorsThatAreRefused(t *testing.T) {
	raw := writeFile(t, "disk.raw", newDisk())
	dir := filepath.Dir(raw)
	at := func(name string) string { return filepath.Join(dir, name) }
	flat := convert(t, raw, at("flat.vmdk"), "vmdk", "-o", "subformat=monolithicFlat")
	convert(t, raw, at("split.vmdk"), "vmdk", "-o", "subformat=twoGbMaxExtentSparse")
	base := convert(t, raw, at("base.vmdk"), "vmdk")
	run(t, "qemu-img", "create", "-f", "vmdk", "-F", "vmdk", "-b", base, at("delta.vmdk"))
	fixed := readFile(t, convert(t, raw, at("fixed.vhd"), "vpc", "-o", "subformat=fixed"))
	badFooter := bytes.Clone(fixed)
	badFooter[len(badFooter)-200] = 1
	shorter := slices.Concat(fixed[:5<<20], fixed[len(fixed)-512:])
	vmdk := readFile(t, base)
	stream := diskimage.StreamVMDK(newDisk(), nil)
	disk := diskimage.Member{Name: "disk.vmdk", Data: vmdk}
	for name, c := range map[string]struct {
		file   []byte
		reason transfer.Reason
		words  string
	}{
		"the descriptor of a flat vmdk":     {readFile(t, flat), transfer.WrongFormat, "other files"},
		"the data of a split vmdk":          {readFile(t, at("split-s001.vmdk")), transfer.WrongFormat, "several files"},
		"the descriptor of a split vmdk":    {readFile(t, at("split.vmdk")), transfer.WrongFormat, "other files"},
		"a delta vmdk":                      {readFile(t, at("delta.vmdk")), transfer.WrongFormat, "difference"},
		"a truncated vmdk":                  {vmdk[:len(vmdk)/2], transfer.InvalidImage, "truncated"},
		"a vmdk of an appliance, truncated": {stream[:len(stream)/2], transfer.InvalidImage, "truncated"},
		"a vhd with a damaged footer":       {badFooter, transfer.InvalidImage, "checksum"},
		"a vhd with a hole in its middle":   {shorter, transfer.InvalidImage, "before its footer"},
		"a truncated vdi":                   {readFile(t, convert(t, raw, at("x.vdi"), "vdi"))[:3<<20], transfer.InvalidImage, "truncated"},
		"a truncated vhd":                   {readFile(t, convert(t, raw, at("x.vhd"), "vpc"))[:3<<20], transfer.InvalidImage, "truncated"},
		"a truncated vhdx":                  {readFile(t, convert(t, raw, at("x.vhdx"), "vhdx"))[:3<<20], transfer.InvalidImage, "truncated"},
		"a bzip2 stream that ends early":    {readFile(t, pack(t, raw, at("x.bz2"), "bzip2", "-c"))[:1<<20], transfer.InvalidImage, "too early"},
		"a broken bzip2 stream":             {append([]byte("BZh91AY&SY"), vmdk[:5000]...), transfer.InvalidImage, "bz2"},
		"an archive with two disks":         {diskimage.Tar(disk, diskimage.Member{Name: "other.vmdk", Data: vmdk}), transfer.WrongFormat, "other.vmdk"},
		"an archive without a disk":         {diskimage.Tar(diskimage.Member{Name: "box.ovf", Data: []byte("<x/>")}, diskimage.Member{Name: "empty.vmdk"}), transfer.WrongFormat, "no disk"},
		"an archive in an archive":          {diskimage.Tar(diskimage.Member{Name: "box.ova", Data: diskimage.Tar(disk)}), transfer.WrongFormat, "inside of a tar"},
		"a truncated archive":               {diskimage.Tar(disk)[:len(vmdk)-1<<20], transfer.InvalidImage, "too early"},
		"bzip2 in gzip":                     {readFile(t, pack(t, pack(t, raw, at("y.bz2"), "bzip2", "-c"), at("y.gz"), "gzip", "-c")), transfer.WrongFormat, "pack it once"},
	} {
		t.Run(name, func(t *testing.T) {
			for _, noRanges := range []bool{false, true} {
				url := handle(t, func(w http.ResponseWriter, r *http.Request) {
					if noRanges {
						r.Header.Del("Range")
						w = withoutRanges{w}
					}
					http.ServeContent(w, r, "x", time.Time{}, bytes.NewReader(c.file))
				})
				doImport(t, url, nil).wantFailure(t, c.reason, c.words)
			}
		})
	}
}
