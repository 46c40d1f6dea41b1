package pool_test

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/slipway-vm/slipway/runtime/hostpath/pool"
)

func TestCreateVolumeOfFilesIsADirectoryThatEveryUserMayWrite(t *testing.T) {
	p, dir := open(t)
	create(t, p, pool.Record{Name: "pvc-1", Capacity: 1 << 30}, nil)
	info, err := os.Stat(filepath.Join(dir, "pvc-1"))
	check(t, err)
	if !info.IsDir() || info.Mode().Perm() != 0o777 {
		t.Errorf("the volume is %v", info.Mode())
	}
}

func TestCreateBlockVolumeIsASparseFileOfTheSizeAskedFor(t *testing.T) {
	p, dir := open(t)
	create(t, p, pool.Record{Name: "pvc-1", Block: true, Capacity: 1 << 30}, nil)
	info, err := os.Stat(filepath.Join(dir, "pvc-1"))
	check(t, err)
	if !info.Mode().IsRegular() || info.Size() != 1<<30 {
		t.Errorf("the volume is %v of %d bytes", info.Mode(), info.Size())
	}
}

func TestCreateVolumeTwiceIsOneVolumeUnlessTheRequestsDiffer(t *testing.T) {
	p, dir := open(t)
	record := pool.Record{Name: "pvc-1", Capacity: 1 << 30}
	create(t, p, record, nil)
	check(t, os.WriteFile(filepath.Join(dir, "pvc-1/kept"), nil, 0o600))
	create(t, p, record, nil)
	if _, err := os.Stat(filepath.Join(dir, "pvc-1/kept")); err != nil {
		t.Error("the second create emptied the volume")
	}
	record.Capacity = 2 << 30
	if _, _, err := p.CreateVolume(t.Context(), record, nil); !errors.Is(err, pool.ErrDiffers) {
		t.Errorf("another size gives %v, want ErrDiffers", err)
	}
}

func TestACloneHoldsTheSourceAndIsItsOwn(t *testing.T) {
	for name, block := range map[string]bool{"files": false, "disk": true} {
		t.Run(name, func(t *testing.T) {
			p, dir := open(t)
			source := pool.Record{Name: "pvc-1", Block: block, Capacity: 8 << 20}
			create(t, p, source, nil)
			put(t, data(dir, source), "golden")
			clone := pool.Record{Name: "pvc-2", Block: block, Capacity: 16 << 20, Source: pool.VolumeSource("pvc-1")}
			create(t, p, clone, from(t, p.OpenVolume, "pvc-1"))
			put(t, data(dir, source), "edited")
			if got := get(t, data(dir, clone)); got != "golden" {
				t.Errorf("the clone holds %q", got)
			}
			if info, err := os.Stat(data(dir, clone)); block && (err != nil || info.Size() != 16<<20) {
				t.Errorf("the clone has %d bytes, want the size asked for", info.Size())
			}
		})
	}
}

func TestASnapshotOutlivesItsVolumeAndCanBeRestored(t *testing.T) {
	p, dir := open(t)
	source := pool.Record{Name: "pvc-1", Capacity: 8 << 20}
	create(t, p, source, nil)
	put(t, data(dir, source), "golden")
	_, _, err := p.CreateSnapshot(t.Context(), "snap-1", from(t, p.OpenVolume, "pvc-1"))
	check(t, err)
	check(t, p.DeleteVolume("pvc-1"))
	restored := pool.Record{Name: "pvc-2", Capacity: 8 << 20, Source: pool.SnapshotSource("snap-1")}
	create(t, p, restored, from(t, p.OpenSnapshot, "snap-1"))
	if got := get(t, data(dir, restored)); got != "golden" {
		t.Errorf("the restored volume holds %q", got)
	}
	check(t, p.DeleteSnapshot("snap-1"))
	if _, err := p.Snapshot("snap-1"); !errors.Is(err, pool.ErrNotFound) {
		t.Errorf("the deleted snapshot gives %v", err)
	}
}

func TestACopyIsRefusedWhenItDoesNotFitItsSource(t *testing.T) {
	cases := map[string]struct {
		record pool.Record
		want   error
	}{
		"smaller than the source":  {pool.Record{Name: "pvc-2", Capacity: 1 << 20}, pool.ErrTooSmall},
		"another mode of volume":   {pool.Record{Name: "pvc-2", Capacity: 8 << 20, Block: true}, pool.ErrDiffers},
		"a name that is a path":    {pool.Record{Name: "../pvc-2", Capacity: 8 << 20}, pool.ErrName},
		"a name of the pool's own": {pool.Record{Name: ".slipway", Capacity: 8 << 20}, pool.ErrName},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			p, _ := open(t)
			create(t, p, pool.Record{Name: "pvc-1", Capacity: 8 << 20}, nil)
			_, _, err := p.CreateVolume(t.Context(), tc.record, from(t, p.OpenVolume, "pvc-1"))
			if !errors.Is(err, tc.want) {
				t.Errorf("got %v, want %v", err, tc.want)
			}
			if _, err := p.Volume("pvc-2"); !errors.Is(err, pool.ErrNotFound) {
				t.Errorf("a volume is left: %v", err)
			}
		})
	}
}

func TestDeleteDoesNotFollowLinksOutOfThePool(t *testing.T) {
	p, dir := open(t)
	outside := t.TempDir()
	put(t, filepath.Join(outside, "disk"), "precious")
	create(t, p, pool.Record{Name: "pvc-1", Capacity: 1}, nil)
	check(t, os.Symlink(outside, filepath.Join(dir, "pvc-1/link")))
	check(t, os.Symlink("../../../../../../../..", filepath.Join(dir, "pvc-1/up")))
	check(t, p.DeleteVolume("pvc-1"))
	check(t, p.DeleteVolume("pvc-1"))
	if get(t, filepath.Join(outside, "disk")) != "precious" {
		t.Error("the deletion left the pool")
	}
	for _, name := range []string{"../x", "", ".", "/etc", ".slipway"} {
		if err := p.DeleteVolume(name); !errors.Is(err, pool.ErrName) {
			t.Errorf("deleting %q gives %v, want ErrName", name, err)
		}
	}
}

func TestOpenSaysWhenThePoolIsNotThere(t *testing.T) {
	if _, err := pool.Open("/", "fast", filepath.Join(t.TempDir(), "none")); !errors.Is(err, pool.ErrMissing) {
		t.Errorf("got %v, want ErrMissing", err)
	}
}

func TestOpenTakesLinksAsTheNodeMeansThem(t *testing.T) {
	host := t.TempDir()
	check(t, os.MkdirAll(filepath.Join(host, "real/pool"), 0o755))
	check(t, os.Symlink("/real", filepath.Join(host, "link")))
	p, err := pool.Open(host, "fast", "/link/pool")
	check(t, err)
	defer p.Close()
	create(t, p, pool.Record{Name: "pvc-1", Capacity: 1}, nil)
	if _, err := os.Stat(filepath.Join(host, "real/pool/pvc-1")); err != nil {
		t.Error("the volume is not in the directory that the link names on the node")
	}
}

func TestVolumesOfAnotherDriverAreFound(t *testing.T) {
	p, dir := open(t)
	check(t, os.Mkdir(filepath.Join(dir, "pvc-old"), 0o777))
	record, err := p.Volume("pvc-old")
	if check(t, err); record.Block || record.Capacity != 0 {
		t.Errorf("got %+v", record)
	}
	create(t, p, pool.Record{Name: "pvc-old", Capacity: 5}, nil)
}

func open(t *testing.T) (*pool.Pool, string) {
	t.Helper()
	dir := t.TempDir()
	p, err := pool.Open("/", "fast", dir)
	check(t, err)
	t.Cleanup(func() { check(t, p.Close()) })
	return p, dir
}

func create(t *testing.T, p *pool.Pool, record pool.Record, source *pool.Copy) {
	t.Helper()
	_, _, err := p.CreateVolume(t.Context(), record, source)
	check(t, err)
}

func from(t *testing.T, open func(string) (*pool.Content, error), name string) *pool.Copy {
	t.Helper()
	content, err := open(name)
	check(t, err)
	t.Cleanup(func() { check(t, content.Close()) })
	return &pool.Copy{From: content}
}

// data is the file of a volume's disk, or a file in its directory.
func data(dir string, record pool.Record) string {
	if record.Block {
		return filepath.Join(dir, record.Name)
	}
	return filepath.Join(dir, record.Name, "disk.img")
}

func put(t *testing.T, path, content string) {
	t.Helper()
	file, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY, 0o600)
	check(t, err)
	_, err = file.WriteString(content)
	check(t, err)
	check(t, file.Close())
}

func get(t *testing.T, path string) string {
	t.Helper()
	content, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return ""
	}
	check(t, err)
	return string(bytes.TrimRight(content[:min(len(content), 64)], "\x00"))
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
