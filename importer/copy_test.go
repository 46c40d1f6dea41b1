package importer_test

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/slipway-vm/slipway/importer"
	"github.com/slipway-vm/slipway/importer/target"
	"github.com/slipway-vm/slipway/internal/transfer"
)

// volumeWith makes a folder that has data as its disk.img.
func volumeWith(t *testing.T, data []byte) string {
	t.Helper()
	return filepath.Dir(writeFile(t, "disk.img", data))
}

// doCopy copies the disk of the volume at from into a new folder, or to where change says.
func doCopy(t *testing.T, from string, change func(*importer.Options)) imported {
	t.Helper()
	options := importer.Options{CopyFrom: from, Target: target.Options{Path: filepath.Join(t.TempDir(), "disk.img")}}
	if change != nil {
		change(&options)
	}
	progress := importer.NewProgress()
	result, err := importer.Run(t.Context(), options, progress)
	if now := progress.Now(); err == nil && (now.Done != now.Total || now.Done == 0) {
		t.Errorf("a copy that is done has the progress %+v", now)
	}
	return imported{result, err, options.Target.Path}
}

// padded is data up to the end of its last sector.
func padded(data []byte) []byte {
	return append(bytes.Clone(data), make([]byte, (512-len(data)%512)%512)...)
}

// What a guest has written onto its disk may look like anything; the disk is what it is.
func TestADiskIsCopiedAsItIs(t *testing.T) {
	disk := newDisk()
	raw := writeFile(t, "disk.raw", disk)
	content := func(path string) []byte {
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		return data
	}
	for name, data := range map[string][]byte{
		"a disk":             disk,
		"one byte":           {7},
		"a text":             []byte("no disk at all, but somebody's\n"),
		"zeros":              make([]byte, 5<<20+512),
		"an image on it":     content(qcow2(t, raw, raw+".qcow2")),
		"a packed one on it": content(pack(t, raw, raw+".gz", "gzip", "-c")),
	} {
		t.Run(name, func(t *testing.T) {
			got := doCopy(t, volumeWith(t, data), nil)
			want := padded(data)
			got.wantDisk(t, want, int64(len(want)))
			if got.result.Format != "raw" || got.result.VirtualSize != int64(len(data)) {
				t.Errorf("the result is %+v", got.result)
			}
		})
	}
}

// A disk that somebody writes to meanwhile would be half of before and half of after.
func TestADiskThatIsWrittenToIsNotCopied(t *testing.T) {
	folder := volumeWith(t, newDisk())
	done, ended := make(chan struct{}), make(chan error, 1)
	began := make(chan struct{})
	go func() {
		at := time.Now()
		for n := 1; ; n++ {
			err := os.Chtimes(filepath.Join(folder, "disk.img"), at, at.Add(time.Duration(n)*time.Millisecond))
			if n == 1 {
				close(began)
			}
			select {
			case <-done:
				ended <- nil
				return
			default:
			}
			if err != nil {
				ended <- err
				return
			}
		}
	}()
	<-began
	got := doCopy(t, folder, nil)
	for deadline := time.Now().Add(3 * time.Minute); got.err == nil && time.Now().Before(deadline); {
		got = doCopy(t, folder, nil) // on a busy machine a disk of this size may be copied between two writes
	}
	close(done)
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	got.wantFailure(t, transfer.SourceChanged, "wrote to the disk")
	again := doCopy(t, folder, nil)
	if again.err != nil {
		t.Errorf("when nobody writes any more: %v", again.err)
	}
}

func TestHolesAreNotCopied(t *testing.T) {
	const size = 4 << 30
	folder := t.TempDir()
	from, err := os.Create(filepath.Join(folder, "disk.img"))
	if err != nil {
		t.Fatal(err)
	}
	defer from.Close()
	if err := from.Truncate(size); err != nil {
		t.Fatal(err)
	}
	for _, off := range []int64{0, 1 << 30, size - 5} {
		if _, err := from.WriteAt([]byte("data\n"), off); err != nil {
			t.Fatal(err)
		}
	}
	got := doCopy(t, folder, nil)
	if got.err != nil {
		t.Fatal(got.err)
	}
	var st unix.Stat_t
	if err := unix.Stat(got.path, &st); err != nil {
		t.Fatal(err)
	}
	if st.Size != size || st.Blocks*512 > 1<<20 || got.result.Written > 1<<20 || got.result.Downloaded > 16<<20 {
		t.Errorf("the copy is of %d bytes and takes %d; read %d, written %d", st.Size, st.Blocks*512, got.result.Downloaded, got.result.Written)
	}
	to, err := os.Open(got.path)
	if err != nil {
		t.Fatal(err)
	}
	defer to.Close()
	for _, off := range []int64{0, 1 << 30, size - 5} {
		data := make([]byte, 5)
		if _, err := to.ReadAt(data, off); err != nil || string(data) != "data\n" {
			t.Errorf("at %d is %q, %v", off, data, err)
		}
	}
}

func TestACopyIsAsLargeAsAskedFor(t *testing.T) {
	disk := newDisk()
	doCopy(t, volumeWith(t, disk), func(o *importer.Options) { o.Target.Size = 32 << 20 }).wantDisk(t, disk, 32<<20)
}

func TestDisksAreCopiedFromAndToDevices(t *testing.T) {
	const size = 40 << 20
	disk := newDisk()
	want := append(bytes.Clone(disk), make([]byte, size-len(disk))...)
	device := newDevice(t, size)
	onto := doCopy(t, volumeWith(t, disk), func(o *importer.Options) { o.Target.Path, o.ScratchDir = device, t.TempDir() })
	if onto.err != nil {
		t.Fatal(onto.err)
	}
	if onto.result.Digest != digestOf(t, want) {
		t.Errorf("onto the device: %+v", onto.result)
	}
	back := doCopy(t, device, nil)
	back.wantDisk(t, want, size)
	if back.result.Digest != onto.result.Digest {
		t.Errorf("from the device: %+v, onto it: %+v", back.result, onto.result)
	}
	small := newDevice(t, 8<<20)
	failed := doCopy(t, device, func(o *importer.Options) { o.Target.Path, o.ScratchDir = small, t.TempDir() })
	if transfer.ReasonOf(failed.err) != transfer.TooSmall {
		t.Errorf("onto a smaller device: %v", failed.err)
	}
}

// What is no disk is not copied, nothing on the volume is followed out of it, and nothing is waited for.
func TestWhatIsNotCopied(t *testing.T) {
	secret := writeFile(t, "disk.img", newDisk())
	for name, c := range map[string]struct {
		fill   func(disk string) error
		reason transfer.Reason
		words  string
	}{
		"no disk":  {func(string) error { return nil }, transfer.WrongFormat, "no file disk.img"},
		"a link":   {func(disk string) error { return os.Symlink(secret, disk) }, transfer.WrongFormat, "no file"},
		"a folder": {func(disk string) error { return os.Mkdir(disk, 0o700) }, transfer.WrongFormat, "no file"},
		"a pipe":   {func(disk string) error { return unix.Mkfifo(disk, 0o600) }, transfer.WrongFormat, "no file"},
		"nothing":  {func(disk string) error { return os.WriteFile(disk, nil, 0o600) }, transfer.WrongFormat, "empty"},
	} {
		t.Run(name, func(t *testing.T) {
			folder := t.TempDir()
			if err := c.fill(filepath.Join(folder, "disk.img")); err != nil {
				t.Fatal(err)
			}
			doCopy(t, folder, nil).wantFailure(t, c.reason, c.words)
		})
	}
	t.Run("no volume", func(t *testing.T) {
		doCopy(t, filepath.Join(t.TempDir(), "none"), nil).wantFailure(t, transfer.SourceFailed)
	})
	t.Run("with a URL", func(t *testing.T) {
		err := importer.RunPod(t.Context(), importer.PodOptions{URL: "http://example.com", Options: importer.Options{CopyFrom: t.TempDir(), Target: target.Options{Path: filepath.Join(t.TempDir(), "disk.img")}}})
		if transfer.ReasonOf(err) != transfer.BadRequest {
			t.Errorf("got %v", err)
		}
	})
}
