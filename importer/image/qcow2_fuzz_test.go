package image

import (
	"bytes"
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/slipway-vm/slipway/internal/transfer"
	"github.com/slipway-vm/slipway/tests/fixture/need"
)

// seeds are small images of every kind that is read.
func seeds(f *testing.F) {
	f.Helper()
	need.Program(f, "qemu-img", "qemu-utils")
	dir := f.TempDir()
	raw := filepath.Join(dir, "raw")
	disk := make([]byte, 24<<10)
	_, _ = rand.NewChaCha8([32]byte{}).Read(disk[:8<<10])
	if err := os.WriteFile(raw, disk, 0o600); err != nil {
		f.Fatal(err)
	}
	for _, options := range [][]string{
		{"-o", "cluster_size=512"}, {"-o", "cluster_size=4k"}, {"-c", "-o", "cluster_size=4k"}, {"-o", "compat=0.10,cluster_size=512"},
		{"-c", "-o", "compression_type=zstd,cluster_size=4k"}, {"-o", "extended_l2=on,cluster_size=16k"},
	} {
		out := filepath.Join(dir, "qcow2")
		args := append(append([]string{"convert", "-f", "raw", "-O", "qcow2"}, options...), raw, out)
		if text, err := exec.Command("qemu-img", args...).CombinedOutput(); err != nil {
			f.Fatalf("%v: %s", err, text)
		}
		data, err := os.ReadFile(out)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
}

// FuzzQCOW2 reads whatever claims to be a qcow2 image: it must end, in bounded memory, with
// the disk or with an error that has a reason.
func FuzzQCOW2(f *testing.F) {
	seeds(f)
	f.Fuzz(func(t *testing.T, file []byte) {
		header, err := ParseQCOW2(file[:min(len(file), HeadSize)])
		if err != nil {
			wantReason(t, err)
			return
		}
		if header.Size > 1<<30 {
			return // the volume refuses it
		}
		reader := bytes.NewReader(file)
		i, err := openQCOW2(header, reader, int64(len(file)))
		if err != nil {
			wantReason(t, err)
			return
		}
		p := make([]byte, MaxCluster)
		for off := int64(0); off < min(header.Size, 4*MaxCluster); off += MaxCluster {
			if _, err := i.Read(reader, p[:min(MaxCluster, header.Size-off)], off); err != nil {
				wantReason(t, err)
				return
			}
		}
	})
}

func wantReason(t *testing.T, err error) {
	t.Helper()
	var typed *transfer.Error
	if !errors.As(err, &typed) || typed.Reason.Retryable() {
		t.Errorf("an image's error has no reason of its own: %v", err)
	}
}

func TestALyingHeaderCostsNoMemory(t *testing.T) {
	head := make([]byte, 512)
	copy(head, "QFI\xfb")
	binary.BigEndian.PutUint32(head[4:], 2)
	binary.BigEndian.PutUint32(head[20:], 16)
	binary.BigEndian.PutUint64(head[24:], 1<<50)
	binary.BigEndian.PutUint32(head[36:], 1<<31)
	binary.BigEndian.PutUint64(head[40:], 1<<16)
	header, err := ParseQCOW2(head)
	if err != nil {
		t.Fatal(err) // 1 PiB is for the volume to refuse
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	if _, err := openQCOW2(header, bytes.NewReader(head), int64(len(head))); err == nil {
		t.Error("a table outside of the file was accepted")
	}
	runtime.ReadMemStats(&after)
	if used := after.TotalAlloc - before.TotalAlloc; used > 1<<20 {
		t.Errorf("%d bytes were allocated for a file of 512", used)
	}
}
