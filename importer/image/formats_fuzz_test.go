package image

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"testing/iotest"

	"github.com/slipway-vm/slipway/tests/fixture/diskimage"
	"github.com/slipway-vm/slipway/tests/fixture/need"
)

// smallDisk is a disk with data, a hole and a tail that is no whole block.
func smallDisk() []byte {
	disk := make([]byte, 200<<10+512)
	_, _ = rand.NewChaCha8([32]byte{2}).Read(disk[:8<<10])
	copy(disk[len(disk)-512:], "the end")
	return disk
}

// made returns disk as an image of the kind that qemu-img's options name.
func made(tb testing.TB, disk []byte, options ...string) []byte {
	tb.Helper()
	need.Program(tb, "qemu-img", "qemu-utils")
	dir := tb.TempDir()
	raw, out := filepath.Join(dir, "raw"), filepath.Join(dir, "image")
	if err := os.WriteFile(raw, disk, 0o600); err != nil {
		tb.Fatal(err)
	}
	args := append(append([]string{"convert", "-f", "raw", "-O"}, options...), raw, out)
	if text, err := exec.Command("qemu-img", args...).CombinedOutput(); err != nil {
		tb.Fatalf("qemu-img %v: %v: %s", args, err, text)
	}
	data, err := os.ReadFile(out)
	if err != nil {
		tb.Fatal(err)
	}
	return data
}

// readDisk reads a whole image, at most limit bytes of its disk.
func readDisk(format Format, file []byte, limit int64) ([]byte, error) {
	reader := bytes.NewReader(file)
	layout, err := Parse(format, file[:min(len(file), HeadSize)], reader, int64(len(file)))
	if err != nil {
		return nil, err
	}
	if layout.DiskSize() > 1<<30 {
		return nil, nil // the volume refuses it
	}
	from, err := layout.Open(reader, int64(len(file)))
	if err != nil {
		return nil, err
	}
	disk := make([]byte, min(layout.DiskSize(), limit))
	for off := 0; off < len(disk); off += MaxCluster {
		if _, err := from.Read(reader, disk[off:min(off+MaxCluster, len(disk))], int64(off)); err != nil {
			return nil, err
		}
	}
	return disk, nil
}

// fuzz reads whatever claims to be of a format: it must end, in bounded memory, with the
// disk or with an error that has a reason.
func fuzz(f *testing.F, format Format) {
	f.Helper()
	f.Fuzz(func(t *testing.T, file []byte) {
		if _, err := readDisk(format, file, 4*MaxCluster); err != nil {
			wantReason(t, err)
		}
	})
}

func FuzzVMDK(f *testing.F) {
	f.Add(made(f, smallDisk(), "vmdk"))
	f.Add(made(f, smallDisk(), "vmdk", "-o", "subformat=streamOptimized"))
	f.Add(made(f, smallDisk(), "vmdk", "-o", "zeroed_grain=on"))
	f.Add(diskimage.StreamVMDK(smallDisk(), nil))
	fuzz(f, VMDK)
}

func FuzzVHD(f *testing.F) {
	f.Add(made(f, smallDisk(), "vpc"))
	f.Add(made(f, smallDisk(), "vpc", "-o", "force_size=on"))
	fuzz(f, VHD)
}

func FuzzVDI(f *testing.F) {
	f.Add(made(f, smallDisk(), "vdi"))
	f.Add(made(f, smallDisk(), "vdi", "-o", "static=on"))
	fuzz(f, VDI)
}

// FuzzVHDX changes what is in front of the data only, for a VHDX has 2 MiB before it: piece
// is put at at of an image that qemu-img made, and the checksums are made right again.
func FuzzVHDX(f *testing.F) {
	good := made(f, smallDisk(), "vhdx", "-o", "block_size=1M,log_size=1M")
	for _, at := range []int{vhdxHeader1, vhdxHeader2, vhdxRegions1, vhdxRegions2, vhdxUnit, 2 << 20, 3 << 20} {
		if at+128 < len(good) {
			f.Add(uint32(at), good[at:at+128], true)
		}
	}
	f.Fuzz(func(t *testing.T, at uint32, piece []byte, mend bool) {
		file := bytes.Clone(good)
		copy(file[int(at)%len(file):], piece)
		if mend {
			mendVHDX(file)
		}
		if _, err := readDisk(VHDX, file, 4*MaxCluster); err != nil {
			wantReason(t, err)
		}
	})
}

// FuzzOrdered reads whatever claims to be a VMDK that comes in order.
func FuzzOrdered(f *testing.F) {
	f.Add(diskimage.StreamVMDK(smallDisk(), nil))
	f.Add(diskimage.StreamVMDK(make([]byte, 1<<20), nil))
	f.Fuzz(func(t *testing.T, file []byte) {
		from, err := NewOrdered(bufio.NewReader(bytes.NewReader(file)))
		if err != nil {
			wantReason(t, err)
			return
		}
		if from.DiskSize() > 16<<20 {
			return // the volume refuses it
		}
		n, err := io.Copy(io.Discard, from)
		if err != nil {
			wantReason(t, err)
		} else if n != from.DiskSize() {
			t.Errorf("%d bytes of a disk of %d came", n, from.DiskSize())
		}
	})
}

// FuzzFixedVHD looks for a footer in whatever comes: all other bytes come through as they are.
func FuzzFixedVHD(f *testing.F) {
	f.Add(made(f, smallDisk(), "vpc", "-o", "subformat=fixed"), uint16(700))
	f.Add([]byte("short"), uint16(3))
	for _, size := range []int{VHDFooterSize, VHDFooterSize + 1, 3 * VHDFooterSize} { // as long as what is held back, and longer
		for _, step := range []uint16{VHDFooterSize - 1, VHDFooterSize, VHDFooterSize + 1, VHDFooterSize + 2} {
			f.Add(make([]byte, size), step)
		}
	}
	f.Fuzz(func(t *testing.T, file []byte, step uint16) {
		from := NewUnfooted(iotest.OneByteReader(bytes.NewReader(file)))
		if step%2 == 0 {
			from = NewUnfooted(iotest.DataErrReader(bytes.NewReader(file)))
		}
		var got bytes.Buffer
		_, err := io.CopyBuffer(struct{ io.Writer }{&got}, from, make([]byte, max(int(step), 1)))
		if err != nil {
			wantReason(t, err)
			return
		}
		want := file
		if from.Footed() {
			want = file[:len(file)-VHDFooterSize]
		}
		if !bytes.Equal(got.Bytes(), want) {
			t.Errorf("%d bytes came of %d", got.Len(), len(want))
		}
	})
}

// blobOf is data as an archive of a container image has it.
func blobOf(data []byte) diskimage.Member {
	sum := sha256.Sum256(data)
	return diskimage.Member{Name: "./blobs/sha256/" + hex.EncodeToString(sum[:]), Data: data}
}

func gzipped(tb testing.TB, data []byte) []byte {
	tb.Helper()
	var packed bytes.Buffer
	writer := gzip.NewWriter(&packed)
	if _, err := writer.Write(data); err != nil {
		tb.Fatal(err)
	}
	if err := writer.Close(); err != nil {
		tb.Fatal(err)
	}
	return packed.Bytes()
}

// FuzzArchive finds the disk in whatever claims to be an archive, also one of a container image, at any offset and in order.
func FuzzArchive(f *testing.F) {
	layer := diskimage.Tar(diskimage.Member{Name: "etc/motd", Data: []byte("hello")}, diskimage.Member{Name: "disk/disk.img", Data: make([]byte, 2000)})
	f.Add(diskimage.Tar(blobOf([]byte("{}")), blobOf(layer), diskimage.Member{Name: "./oci-layout", Data: []byte("{}")}))
	f.Add(diskimage.Tar(diskimage.Member{Name: "oci-layout", Data: []byte("{}")}, blobOf(gzipped(f, layer)), blobOf(layer)))
	f.Add(diskimage.Tar(diskimage.Member{Name: "a.ovf", Data: []byte("<x/>")}, diskimage.Member{Name: "a-disk1.vmdk", Data: make([]byte, 2000)}))
	f.Add(diskimage.Tar(diskimage.Member{Name: "a.vmdk", Data: make([]byte, 20)}, diskimage.Member{Name: "../b.vmdk", Data: make([]byte, 20)}))
	f.Fuzz(func(t *testing.T, file []byte) {
		member, err := FindDisk(bytes.NewReader(file), int64(len(file)))
		if err != nil {
			wantReason(t, err)
			return
		}
		archive := NewArchive(bufio.NewReader(bytes.NewReader(file)))
		content, size, plain, err := archive.Disk()
		if err != nil || size != member.Size || plain != member.Plain {
			t.Fatalf("in order it is another one: %d bytes, %v", size, err)
		}
		if size > 16<<20 {
			return
		}
		data, err := io.ReadAll(content)
		if err != nil {
			wantReason(t, err)
			return
		}
		if plain && !bytes.Equal(data, file[member.Offset:member.Offset+member.Size]) {
			t.Error("in order it has another content")
		}
		if err := archive.Finish(); err != nil {
			wantReason(t, err)
		}
	})
}
