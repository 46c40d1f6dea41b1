package qcow2

import (
	"bytes"
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/slipway-vm/slipway/tests/fixture/need"
)

// sparse makes a disk of the size with these pieces in it.
func sparse(t *testing.T, size int64, pieces map[int64][]byte) *os.File {
	t.Helper()
	file, err := os.Create(filepath.Join(t.TempDir(), "disk.img"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = file.Close() })
	if err := file.Truncate(size); err != nil {
		t.Fatal(err)
	}
	for at, data := range pieces {
		if _, err := file.WriteAt(data, at); err != nil {
			t.Fatal(err)
		}
	}
	return file
}

func noise(n int) []byte {
	data := make([]byte, n)
	random := rand.New(rand.NewPCG(1, uint64(n)))
	for i := range data {
		data[i] = byte(random.Uint32())
	}
	return data
}

// qemu-img is the judge: the image has no errors, and is the same disk.
func TestImagesAreWhatQEMUReads(t *testing.T) {
	qemuImg := need.Program(t, "qemu-img", "qemu-utils")
	const mib = 1 << 20
	for name, c := range map[string]struct {
		size   int64
		pieces map[int64][]byte
		stored int64 // clusters
	}{
		"an empty disk":               {size: 3 * mib},
		"one byte":                    {3 * mib, map[int64][]byte{mib + 5: {1}}, 1},
		"a size that is no cluster's": {cluster + 3*sector, map[int64][]byte{cluster: noise(3 * sector)}, 1},
		"a size that is no sector's":  {sector + 100, map[int64][]byte{sector: noise(100)}, 1},
		"full":                        {2 * mib, map[int64][]byte{0: noise(2 * mib)}, 32},
		"zeros that are stored":       {2 * mib, map[int64][]byte{0: make([]byte, mib), mib: noise(10)}, 1},
		"several tables":              {3 << 30, map[int64][]byte{0: noise(70000), 1<<30 - 3: noise(10), 3<<30 - 5: noise(5)}, 5},
		"more data than a read takes": {20 * mib, map[int64][]byte{cluster: noise(5 * mib)}, 80},
	} {
		t.Run(name, func(t *testing.T) {
			disk := sparse(t, c.size, c.pieces)
			plan, err := Read(t.Context(), disk, c.size, nil)
			if err != nil {
				t.Fatal(err)
			}
			if plan.count != c.stored {
				t.Errorf("%d clusters are stored, want %d", plan.count, c.stored)
			}
			image := filepath.Join(t.TempDir(), "disk.qcow2")
			out, err := os.Create(image)
			if err != nil {
				t.Fatal(err)
			}
			if err := errors.Join(plan.Write(t.Context(), out, disk), out.Close()); err != nil {
				t.Fatal(err)
			}
			if info, err := os.Stat(image); err != nil || info.Size() != plan.Size() {
				t.Errorf("the image's size: %v, %v; planned are %d", info.Size(), err, plan.Size())
			}
			for _, args := range [][]string{{"check", "-f", "qcow2", image}, {"compare", "-f", "raw", "-F", "qcow2", disk.Name(), image}} {
				if out, err := exec.CommandContext(t.Context(), qemuImg, args...).CombinedOutput(); err != nil {
					t.Errorf("qemu-img %v: %v\n%s", args, err, out)
				}
			}
		})
	}
}

// A layer's digest is that of its bytes: the same disk must give the same.
func TestTheSameDiskGivesTheSameBytes(t *testing.T) {
	disk := sparse(t, 8<<20, map[int64][]byte{1 << 20: noise(300000)})
	var images [2]bytes.Buffer
	for i := range images {
		plan, err := Read(t.Context(), disk, 8<<20, nil)
		if err != nil {
			t.Fatal(err)
		}
		if err := plan.Write(t.Context(), &images[i], disk); err != nil {
			t.Fatal(err)
		}
	}
	if !bytes.Equal(images[0].Bytes(), images[1].Bytes()) {
		t.Error("two images of one disk differ")
	}
}

// The tables' sizes are computed for disks larger than a test can write.
func TestTablesOfLargeDisks(t *testing.T) {
	for _, size := range []int64{1 << 40, 16 << 40} {
		p := &Plan{size: size, used: make([]uint64, size/cluster/64)}
		for i := range p.used {
			p.used[i] = ^uint64(0)
		}
		p.count = p.clusters()
		p.layOut()
		if p.refBlocks*perRefcount < p.total() || p.refTable*perTable < p.refBlocks || p.l1*perTable < p.l1Entries() || p.tables != p.l1Entries() {
			t.Errorf("%d bytes: %d refcount blocks in %d, L1 %d, %d tables for %d clusters", size, p.refBlocks, p.refTable, p.l1, p.tables, p.total())
		}
	}
}

type failing struct{ *os.File }

func (failing) ReadAt([]byte, int64) (int, error) { return 0, errors.New("medium error") }

func TestFailuresAreTold(t *testing.T) {
	disk := sparse(t, 1<<20, map[int64][]byte{0: noise(10)})
	if _, err := Read(t.Context(), failing{disk}, 1<<20, nil); err == nil {
		t.Error("a disk that cannot be read was read")
	}
	plan, err := Read(t.Context(), disk, 1<<20, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := plan.Write(t.Context(), io.Discard, failing{disk}); err == nil {
		t.Error("a disk that cannot be read was written")
	}
	ended, stop := context.WithCancel(t.Context())
	stop()
	if _, err := Read(ended, disk, 1<<20, nil); !errors.Is(err, context.Canceled) {
		t.Errorf("reading after the end: %v", err)
	}
	if err := plan.Write(ended, io.Discard, disk); !errors.Is(err, context.Canceled) {
		t.Errorf("writing after the end: %v", err)
	}
}
