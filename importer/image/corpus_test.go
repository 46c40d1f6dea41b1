package image

import (
	"bytes"
	"encoding/binary"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/slipway-vm/slipway/tests/fixture/need"
)

// TestDataInTheLastClusterOfALargeDisk reads the end of disks of 64 GiB that hold nothing else.
func TestDataInTheLastClusterOfALargeDisk(t *testing.T) {
	const size = 64 << 30
	need.Program(t, "qemu-io", "qemu-utils")
	for name, c := range map[string]struct {
		format  Format
		options []string
	}{
		"qcow2": {QCOW2, []string{"qcow2"}}, "qcow2 with small clusters": {QCOW2, []string{"qcow2", "-o", "cluster_size=4k"}},
		"vmdk": {VMDK, []string{"vmdk"}}, "vhd": {VHD, []string{"vpc", "-o", "force_size=on"}},
		"vhdx": {VHDX, []string{"vhdx"}}, "vdi": {VDI, []string{"vdi"}},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "image")
			create := append(append([]string{"create", "-q", "-f"}, c.options...), path, "64G")
			write := []string{"-f", c.options[0], "-c", "write -P 7 68719472640 4k", path}
			for _, command := range [][]string{append([]string{"qemu-img"}, create...), append([]string{"qemu-io"}, write...)} {
				if out, err := exec.Command(command[0], command[1:]...).CombinedOutput(); err != nil {
					t.Fatalf("%v: %v: %s", command, err, out)
				}
			}
			wantLastOnly(t, c.format, path, size)
		})
	}
}

// wantLastOnly checks that of an image's disk the last 4 KiB are sevens, and the first bytes, those in the middle and those
// before the last are not there or zeros.
func wantLastOnly(t *testing.T, format Format, path string, size int64) {
	t.Helper()
	file, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		t.Fatal(err)
	}
	head := make([]byte, HeadSize)
	if _, err := file.ReadAt(head, 0); err != nil {
		t.Fatal(err)
	}
	layout, err := Parse(format, head, file, info.Size())
	if err != nil {
		t.Fatal(err)
	}
	if layout.DiskSize() != size {
		t.Fatalf("the disk has %d bytes, want %d", layout.DiskSize(), size)
	}
	disk, err := layout.Open(file, info.Size())
	if err != nil {
		t.Fatal(err)
	}
	for _, off := range []int64{0, size / 2, size - 2*MaxCluster, size - MaxCluster} {
		got, want := make([]byte, MaxCluster), make([]byte, MaxCluster)
		if off == size-MaxCluster {
			copy(want[MaxCluster-4096:], bytes.Repeat([]byte{7}, 4096))
		}
		if _, err := disk.Read(file, got, off); err != nil || !bytes.Equal(got, want) {
			t.Errorf("at %d it holds something else (%v)", off, err)
		}
	}
}

// TestBlocksThatLieOnEachOther has two entries of a table name one block of the file: the disk has it twice, and nothing else
// changes.
func TestBlocksThatLieOnEachOther(t *testing.T) {
	disk := make([]byte, 8<<20)
	for block := range 4 { // of 2 MiB, the largest of the formats
		copy(disk[block*2<<20:], bytes.Repeat([]byte{byte(block + 1)}, 2<<20))
	}
	vhd := made(t, disk, "vpc", "-o", "force_size=on")
	vdi := made(t, disk, "vdi")
	qcow := made(t, disk, "qcow2", "-o", "cluster_size=2M")
	l1 := int(binary.BigEndian.Uint64(qcow[40:]))
	for name, c := range map[string]struct {
		format             Format
		file               []byte
		table, entry, size int // where the table is, how large an entry and a block of the disk are
	}{
		"qcow2": {QCOW2, qcow, int(binary.BigEndian.Uint64(qcow[l1:]) & 0x00fffffffffffe00), 8, 2 << 20},
		"vhd":   {VHD, vhd, int(binary.BigEndian.Uint64(vhd[vhdFooterSize+16:])), 4, 2 << 20},
		"vdi":   {VDI, vdi, int(binary.LittleEndian.Uint32(vdi[vdiMap:])), 4, 1 << 20},
	} {
		t.Run(name, func(t *testing.T) {
			last := len(disk)/c.size - 1
			file := put(c.file, c.table+last*c.entry, c.file[c.table:c.table+c.entry])
			want := bytes.Clone(disk)
			copy(want[last*c.size:], disk[:c.size])
			if got, err := readDisk(c.format, file, 1<<30); err != nil || !bytes.Equal(got, want) {
				t.Errorf("it is another disk (%v)", err)
			}
		})
	}
}

// TestVHDBlocksThatOverlap has a block begin in the middle of another one, for a VHD counts in sectors: what lies there is read,
// and nothing behind the file's end.
func TestVHDBlocksThatOverlap(t *testing.T) {
	disk := make([]byte, 8<<20)
	for sector := range len(disk) / 512 {
		binary.BigEndian.PutUint32(disk[512*sector:], uint32(sector+1))
	}
	file := made(t, disk, "vpc", "-o", "force_size=on")
	table := int(binary.BigEndian.Uint64(file[vhdFooterSize+16:]))
	first := binary.BigEndian.Uint32(file[table:])
	got, err := readDisk(VHD, put(file, table+4, be32(first+1)), 1<<30)
	if err != nil {
		t.Fatal(err)
	}
	want := bytes.Clone(disk)
	copy(want[2<<20:4<<20], disk[512:2<<20]) // all but the last sector
	end := 4<<20 - 512
	if !bytes.Equal(got[:end], want[:end]) || !bytes.Equal(got[4<<20:], want[4<<20:]) {
		t.Error("it is another disk")
	}
}
