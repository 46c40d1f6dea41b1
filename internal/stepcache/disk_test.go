package stepcache

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/slipway-vm/slipway/internal/digest"
)

// sparse makes a file of size bytes with data at some places, and returns its whole content.
func sparse(t *testing.T, path string, size int64, places ...int64) []byte {
	t.Helper()
	content := make([]byte, size)
	file, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	random := rand.New(rand.NewPCG(1, uint64(size)))
	for _, at := range places {
		data := make([]byte, min(5000, size-at))
		for i := range data {
			data[i] = byte(random.Uint32())
		}
		copy(content[at:], data)
		if _, err := file.WriteAt(data, at); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(file.Truncate(size), file.Close()); err != nil {
		t.Fatal(err)
	}
	return content
}

// formerDigest is the digest of content in the format's first version.
func formerDigest(t *testing.T, content []byte) string {
	t.Helper()
	tree, err := digest.Like("slipway1:")
	if err != nil {
		t.Fatal(err)
	}
	for off := 0; off < len(content); off += digest.BlockSize {
		tree.Put(int64(off/digest.BlockSize), content[off:min(off+digest.BlockSize, len(content))])
	}
	return tree.Sum(int64(len(content)))
}

func TestDiskDigestIsThatOfTheWholeDisk(t *testing.T) {
	const block = digest.BlockSize
	for name, c := range map[string]struct {
		size   int64
		places []int64
	}{
		"empty":                {0, nil},
		"holes only":           {20*block + 3, nil},
		"short last block":     {3*block + 100, []int64{0, 3 * block}},
		"data across blocks":   {9 * block, []int64{block - 10, 2*block - 2500, 7 * block}},
		"many data, one block": {2 * block, []int64{0, 20000, 400000, 900000}},
	} {
		path := filepath.Join(t.TempDir(), "disk.img")
		content := sparse(t, path, c.size, c.places...)
		want, err := digest.Of(context.Background(), bytes.NewReader(content), c.size, 1)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := DiskDigest(context.Background(), path); err != nil || got != want {
			t.Errorf("%s: %s, %v; want %s", name, got, err, want)
		}
	}
	if _, err := DiskDigest(context.Background(), filepath.Join(t.TempDir(), "none")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a disk that is not there: %v", err)
	}
	ended, stop := context.WithCancel(context.Background())
	stop()
	path := filepath.Join(t.TempDir(), "disk.img")
	sparse(t, path, 64*block, 0, block, 2*block, 3*block, 4*block, 5*block, 6*block, 7*block, 8*block)
	if _, err := DiskDigest(ended, path); !errors.Is(err, context.Canceled) {
		t.Errorf("a reading that was ended: %v", err)
	}
}

func TestWorkReplacesTheDiskAsAWholeOrNotAtAll(t *testing.T) {
	entryDir, targetDir := t.TempDir(), t.TempDir()
	entry, target := filepath.Join(entryDir, "disk.img"), filepath.Join(targetDir, "disk.img")
	content := sparse(t, entry, 5<<20+7, 0, 3<<20)
	before := sparse(t, target, 1<<20, 100)
	if err := os.Chmod(target, 0o640); err != nil {
		t.Fatal(err)
	}
	want, err := DiskDigest(context.Background(), entry)
	if err != nil {
		t.Fatal(err)
	}
	work := Work{Entry: entry, Digest: want, Target: target, Report: filepath.Join(entryDir, "report")}

	poisoned := work
	poisoned.Digest = base
	if err := poisoned.Do(context.Background()); !errors.Is(err, ErrPoisoned) {
		t.Errorf("an entry of another content: %v", err)
	}
	if got := readReport(t, work.Report); !got.Poisoned || !strings.Contains(got.Failure, base) {
		t.Errorf("the report of a poisoned entry: %+v", got)
	}
	if got, _ := os.ReadFile(target); !bytes.Equal(got, before) {
		t.Error("a poisoned entry has changed the disk")
	}
	onlyFile(t, targetDir)

	gone := work
	gone.Entry = filepath.Join(entryDir, "none")
	if err := gone.Do(context.Background()); !errors.Is(err, fs.ErrNotExist) || readReport(t, work.Report).Failure == "" {
		t.Errorf("an entry that is gone: %v", err)
	}

	// What a killed pod left is in nobody's way.
	sparse(t, filepath.Join(targetDir, ".disk.img.step-cache"), 9<<20, 8<<20)
	if err := work.Do(context.Background()); err != nil {
		t.Fatal(err)
	}
	if got, _ := os.ReadFile(target); !bytes.Equal(got, content) {
		t.Error("the disk is not that of the entry")
	}
	info, err := os.Stat(target)
	if err != nil || info.Mode().Perm() != 0o640 {
		t.Errorf("the disk's mode is %v, %v; want that of before", info.Mode(), err)
	}
	if got := readReport(t, work.Report); got.How != HowCopy && got.How != HowReflink || got.Poisoned || got.Failure != "" {
		t.Errorf("the report: %+v", got)
	}
	onlyFile(t, targetDir)

	for _, of := range []string{want, formerDigest(t, content)} {
		for name, again := range map[string]Work{"checking only": {Entry: entry, Digest: of}, "copying": {Entry: entry, Digest: of, Target: target}} {
			if err := again.Do(context.Background()); err != nil {
				t.Errorf("%s by %s: %v", name, of, err)
			}
		}
	}
	unknown := Work{Entry: entry, Digest: "slipway3:00", Target: target}
	if err := unknown.Do(context.Background()); err == nil || errors.Is(err, ErrPoisoned) {
		t.Errorf("an entry with a digest of a later version: %v", err)
	}
	onlyFile(t, targetDir)
	sparse(t, entry, 5<<20+7, 0, 3<<20, 4<<20)
	check := Work{Entry: entry, Digest: want}
	if err := check.Do(context.Background()); !errors.Is(err, ErrPoisoned) {
		t.Errorf("checking an entry that was changed: %v", err)
	}
}

func TestADeviceIsRewrittenWhereItDiffers(t *testing.T) {
	const block = digest.BlockSize
	folder := t.TempDir()
	entry, target := filepath.Join(folder, "entry"), filepath.Join(folder, "target")
	content := sparse(t, entry, 6*block+512, 0, 3*block, 6*block)
	before := sparse(t, target, 6*block+512, 0, 1*block, 5*block)
	want, err := DiskDigest(context.Background(), entry)
	if err != nil {
		t.Fatal(err)
	}
	work := Work{Entry: entry, Digest: want, Target: target, InPlace: true, Report: filepath.Join(folder, "report")}

	poisoned := work
	poisoned.Digest = base
	if err := poisoned.Do(context.Background()); !errors.Is(err, ErrPoisoned) {
		t.Errorf("an entry of another content: %v", err)
	}
	if got := readReport(t, work.Report); !got.Poisoned || got.Half {
		t.Errorf("the report of a poisoned entry: %+v", got)
	}
	small := work
	small.Target = filepath.Join(folder, "small")
	sparse(t, small.Target, 5*block, 0)
	if err := small.Do(context.Background()); err == nil || !strings.Contains(err.Error(), "the entry's disk") || readReport(t, work.Report).Half {
		t.Errorf("a device of another size: %v", err)
	}
	if got, _ := os.ReadFile(target); !bytes.Equal(got, before) {
		t.Fatal("the device was changed for nothing")
	}

	if err := work.Do(context.Background()); err != nil {
		t.Fatal(err)
	}
	if got, _ := os.ReadFile(target); !bytes.Equal(got, content) {
		t.Error("the device is not the entry's disk")
	}
	if got := readReport(t, work.Report); got.How != HowRewrite || got.Half {
		t.Errorf("the report: %+v", got)
	}
}

// A device that is left in between says so, and is finished by another try.
func TestADeviceThatIsHalfRewrittenSaysSo(t *testing.T) {
	const block = digest.BlockSize
	folder := t.TempDir()
	entry, target := filepath.Join(folder, "entry"), filepath.Join(folder, "target")
	content := sparse(t, entry, 4*block, 0, 3*block)
	sparse(t, target, 4*block, 1*block)
	want, err := DiskDigest(context.Background(), entry)
	if err != nil {
		t.Fatal(err)
	}
	source, err := os.Open(entry)
	if err != nil {
		t.Fatal(err)
	}
	defer source.Close()
	file, err := os.OpenFile(target, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if _, err := file.WriteAt(content[:block], 0); err != nil { // the first block was written, then the pod was killed
		t.Fatal(err)
	}
	d := &device{File: file, buffers: make(chan []byte, readers)}
	ended, stop := context.WithCancel(context.Background())
	stop()
	if _, err := d.become(ended, source, want); !errors.Is(err, context.Canceled) {
		t.Errorf("a try that is ended: %v", err)
	}
	work := Work{Entry: entry, Digest: want, Target: target, InPlace: true, Report: filepath.Join(folder, "report")}
	if err := work.Do(context.Background()); err != nil {
		t.Fatal(err)
	}
	if got, _ := os.ReadFile(target); !bytes.Equal(got, content) {
		t.Error("another try did not finish the device")
	}

	// Writing fails in the middle: the report says that the device is neither disk.
	sparse(t, target, 4*block, 1*block)
	if err := file.Close(); err != nil {
		t.Fatal(err)
	}
	closed := &device{File: file, buffers: make(chan []byte, readers)}
	closed.changed.Store(true)
	if err := closed.half(errors.New("input/output error")); !errors.Is(err, errHalf) {
		t.Errorf("a write that failed: %v", err)
	}
	if err := (&device{}).half(errors.New("input/output error")); errors.Is(err, errHalf) {
		t.Errorf("a read that failed before any write: %v", err)
	}
}

func readReport(t *testing.T, path string) report {
	t.Helper()
	data, err := os.ReadFile(path)
	r := report{}
	if err := errors.Join(err, json.Unmarshal(data, &r)); err != nil {
		t.Fatal(err)
	}
	return r
}

func onlyFile(t *testing.T, folder string) {
	t.Helper()
	entries, err := os.ReadDir(folder)
	if err != nil || len(entries) != 1 {
		t.Errorf("the claim holds %v, %v; want the disk alone", entries, err)
	}
}
