package importer_test

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/slipway-vm/slipway/importer"
	"github.com/slipway-vm/slipway/importer/target"
	"github.com/slipway-vm/slipway/internal/transfer"
	"github.com/slipway-vm/slipway/tests/fixture/need"
)

// newDevice makes a loop device of size bytes that is full of old data.
func newDevice(t *testing.T, size int) string {
	t.Helper()
	return deviceOn(t, writeFile(t, "backing", bytes.Repeat([]byte("old data"), size/8)))
}

// deviceOn makes a loop device on a file.
func deviceOn(t *testing.T, backing string) string {
	t.Helper()
	out, err := exec.Command("losetup", "--find", "--show", backing).CombinedOutput()
	if err != nil {
		need.Missing(t, "no loop device can be made (%v: %s); run it as root", err, out)
	}
	device := strings.TrimSpace(string(out))
	t.Cleanup(func() {
		if out, err := exec.Command("losetup", "--detach", device).CombinedOutput(); err != nil {
			t.Errorf("detaching %s: %v: %s", device, err, out)
		}
	})
	return device
}

func TestABlockDevice(t *testing.T) {
	const size = 40 << 20
	disk := newDisk()
	raw := writeFile(t, "disk.raw", disk)
	for _, file := range []string{raw, qcow2(t, raw, raw+".qcow2"), pack(t, raw, raw+".gz", "gzip", "-c"), pack(t, raw+".qcow2", raw+".qcow2.xz", "xz", "-c")} {
		t.Run(filepath.Ext(file), func(t *testing.T) {
			backing := writeFile(t, "backing", bytes.Repeat([]byte("old data"), size/8))
			device := deviceOn(t, backing)
			s := serve(t, filepath.Dir(raw))
			got := doImport(t, s.URL+"/"+filepath.Base(file), func(o *importer.Options) {
				o.Target.Path, o.ScratchDir = device, t.TempDir()
			})
			if got.err != nil {
				t.Fatal(got.err)
			}
			have, err := os.ReadFile(device)
			if err != nil {
				t.Fatal(err)
			}
			want := make([]byte, size)
			copy(want, disk)
			if !bytes.Equal(have, want) {
				t.Error("the device holds something else")
			}
			if digest := digestOf(t, want); got.result.Digest != digest {
				t.Errorf("digest %s, want %s", got.result.Digest, digest)
			}
			if used := allocated(t, backing); used > 8<<20 {
				t.Errorf("%d bytes lie under a device with 6 MiB of data", used)
			}
		})
	}
}

// allocated is how many bytes a file takes.
func allocated(t *testing.T, path string) int64 {
	t.Helper()
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err != nil {
		t.Fatal(err)
	}
	return st.Blocks * 512
}

func TestAPreallocatedDeviceHasAllItsSpace(t *testing.T) {
	const size = 40 << 20
	raw := writeFile(t, "disk.raw", newDisk())
	s := serve(t, filepath.Dir(raw))
	for name, file := range map[string]string{"an image": raw, "a stream": pack(t, raw, raw+".gz", "gzip", "-c"), "blank": ""} {
		t.Run(name, func(t *testing.T) {
			backing := writeFile(t, "backing", nil)
			if err := os.Truncate(backing, size); err != nil {
				t.Fatal(err)
			}
			got := doImport(t, s.URL+"/"+filepath.Base(file), func(o *importer.Options) {
				o.Target.Path, o.Target.Preallocate = deviceOn(t, backing), true
				if file == "" {
					o.Source = nil
				}
			})
			if got.err != nil {
				t.Fatal(got.err)
			}
			if used := allocated(t, backing); used < size {
				t.Errorf("only %d bytes are reserved", used)
			}
		})
	}
}

func TestADeviceThatIsTooSmallOrFailsIsNotTakenForADisk(t *testing.T) {
	raw := writeFile(t, "disk.raw", newDisk())
	s := serve(t, filepath.Dir(raw))
	small := newDevice(t, 8<<20)
	got := doImport(t, s.URL+"/disk.raw", func(o *importer.Options) { o.Target.Path = small })
	if transfer.ReasonOf(got.err) != transfer.TooSmall {
		t.Errorf("got %v", got.err)
	}
	if have, err := os.ReadFile(small); err != nil || !bytes.HasPrefix(have, []byte("old data")) {
		t.Error("a device that is too small was written")
	}
	device := newDevice(t, 40<<20)
	got = doImport(t, s.URL+"/disk.raw", func(o *importer.Options) {
		o.Target.Path, o.Checksum = device, "md5:00000000000000000000000000000000"
	})
	if transfer.ReasonOf(got.err) != transfer.ChecksumMismatch {
		t.Errorf("got %v", got.err)
	}
	have, err := os.ReadFile(device)
	if err != nil || !bytes.Equal(have[:1<<20], make([]byte, 1<<20)) || !bytes.Equal(have[39<<20:], make([]byte, 1<<20)) {
		t.Error("the edges of a failed disk are not clear")
	}
}

// An importer whose pod was deleted by force may outlive it, and clears the device's edges when it ends.
func TestADeviceThatAnotherImporterHasIsNotWritten(t *testing.T) {
	raw := writeFile(t, "disk.raw", newDisk())
	s := serve(t, filepath.Dir(raw))
	device := newDevice(t, 40<<20)
	earlier, err := target.Open(target.Options{Path: device})
	if err != nil {
		t.Fatal(err)
	}
	if err := earlier.Begin(40 << 20); err != nil {
		t.Fatal(err)
	}
	into := func(o *importer.Options) { o.Target.Path = device }
	got := doImport(t, s.URL+"/disk.raw", into)
	if transfer.ReasonOf(got.err) != transfer.TargetFailed || !strings.Contains(got.err.Error(), "has not quite ended") {
		t.Errorf("got %v", got.err)
	}
	if have, err := os.ReadFile(device); err != nil || !bytes.HasPrefix(have, []byte("old data")) {
		t.Error("a device that another importer has was written")
	}
	if err := earlier.Abort(); err != nil {
		t.Fatal(err)
	}
	if got := doImport(t, s.URL+"/disk.raw", into); got.err != nil {
		t.Errorf("once the other has ended: %v", got.err)
	}
}

func TestAVolumeThatRunsFull(t *testing.T) {
	dir := t.TempDir()
	mountMemory(t, dir, 40<<20)
	if err := os.WriteFile(filepath.Join(dir, "another"), bytes.Repeat([]byte{1}, 38<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	raw := writeFile(t, "disk.raw", newDisk())
	qcow := qcow2(t, raw, raw+".qcow2")
	s := serve(t, filepath.Dir(raw))
	for _, file := range []string{raw, qcow, pack(t, qcow, qcow+".gz", "gzip", "-c")} {
		got := doImport(t, s.URL+"/"+filepath.Base(file), func(o *importer.Options) {
			o.Target.Path, o.Target.Size = filepath.Join(dir, "disk.img"), 30<<20
		})
		if transfer.ReasonOf(got.err) != transfer.NoSpace || !strings.Contains(got.err.Error(), "free space") && !strings.Contains(got.err.Error(), "larger volume") {
			t.Errorf("%s: got %v", filepath.Base(file), got.err)
		}
		if left, _ := os.ReadDir(dir); len(left) != 1 {
			t.Errorf("something was left on the full volume: %v", left)
		}
	}
	if err := os.Remove(filepath.Join(dir, "another")); err != nil {
		t.Fatal(err)
	}
	for _, file := range []string{raw, qcow} { // space has come
		path := filepath.Join(dir, "disk.img")
		got := doImport(t, s.URL+"/"+filepath.Base(file), func(o *importer.Options) { o.Target.Path, o.Target.Size = path, 30<<20 })
		got.path = path
		got.wantDisk(t, newDisk(), 30<<20)
	}
}
