package pool_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/slipway-vm/slipway/runtime/hostpath/pool"
)

func TestExpandGrowsAndNeverShrinks(t *testing.T) {
	for name, block := range map[string]bool{"files": false, "disk": true} {
		t.Run(name, func(t *testing.T) {
			p, dir := open(t)
			volume := pool.Record{Name: "pvc-1", Block: block, Capacity: 8 << 20}
			create(t, p, volume, nil)
			put(t, data(dir, volume), "golden")
			for _, size := range []int64{16 << 20, 16 << 20, 4 << 20} {
				if got, err := p.Expand("pvc-1", size); err != nil || got.Capacity != 16<<20 {
					t.Errorf("asked for %d: got %d, %v", size, got.Capacity, err)
				}
			}
			kept, err := p.Volume("pvc-1")
			if check(t, err); kept.Capacity != 16<<20 || kept.Created.IsZero() {
				t.Errorf("the record is %+v", kept)
			}
			if info, err := os.Stat(data(dir, volume)); block && (err != nil || info.Size() != 16<<20) {
				t.Errorf("the disk has %d bytes", info.Size())
			}
			if got := get(t, data(dir, volume)); got != "golden" {
				t.Errorf("the volume holds %q", got)
			}
		})
	}
}

// A guest may have used the whole device since: what is copied of it is whole, too.
func TestAnExpansionThatACrashCutShortCounts(t *testing.T) {
	p, dir := open(t)
	volume := pool.Record{Name: "pvc-1", Block: true, Capacity: 8 << 20}
	create(t, p, volume, nil)
	check(t, os.Truncate(data(dir, volume), 16<<20)) // grown, and not written down
	check(t, os.WriteFile(filepath.Join(dir, ".slipway/volumes/pvc-1.json.new"), []byte(`{"name":"pvc-`), 0o600))
	found, err := p.Volume("pvc-1")
	if check(t, err); found.Capacity != 16<<20 {
		t.Errorf("the volume has %d bytes", found.Capacity)
	}
	clone := pool.Record{Name: "pvc-2", Block: true, Capacity: 16 << 20, Source: pool.VolumeSource("pvc-1")}
	create(t, p, clone, from(t, p.OpenVolume, "pvc-1"))
	if info, err := os.Stat(data(dir, clone)); err != nil || info.Size() != 16<<20 {
		t.Errorf("the clone has %d bytes", info.Size())
	}
	expanded, err := p.Expand("pvc-1", 16<<20)
	if check(t, err); expanded.Capacity != 16<<20 {
		t.Errorf("the volume has %d bytes", expanded.Capacity)
	}
	found, err = p.Volume("pvc-1")
	if check(t, err); found.Capacity != 16<<20 {
		t.Errorf("the record has %d bytes", found.Capacity)
	}
}

func TestExpandOfWhatAnotherDriverMadeAndOfNothing(t *testing.T) {
	p, dir := open(t)
	check(t, os.Mkdir(filepath.Join(dir, "pvc-old"), 0o777))
	if got, err := p.Expand("pvc-old", 5); err != nil || got.Capacity != 5 {
		t.Errorf("got %+v, %v", got, err)
	}
	if _, err := p.Expand("pvc-none", 5); !errors.Is(err, pool.ErrNotFound) {
		t.Errorf("got %v, want ErrNotFound", err)
	}
	check(t, os.Symlink("/etc/passwd", filepath.Join(dir, "pvc-link")))
	if _, err := p.Expand("pvc-link", 1<<30); err == nil {
		t.Error("a link was expanded")
	}
}

// Whoever can write to the pool puts a link to another's volume in the place of his own.
func TestALinkToAnotherVolumeIsNotFollowed(t *testing.T) {
	for name, block := range map[string]bool{"disks": true, "files": false} {
		t.Run(name, func(t *testing.T) {
			p, dir := open(t)
			for _, volume := range []string{"pvc-his", "pvc-other"} {
				create(t, p, pool.Record{Name: volume, Block: block, Capacity: 1 << 20}, nil)
			}
			link := filepath.Join(dir, "pvc-his")
			check(t, os.Remove(link))
			check(t, os.Symlink("pvc-other", link))
			if content, err := p.OpenVolume("pvc-his"); err == nil {
				t.Errorf("opening gives %+v", content)
			}
			if block {
				if _, err := p.Expand("pvc-his", 2<<20); err == nil {
					t.Error("the link was grown")
				}
				if info, err := os.Stat(filepath.Join(dir, "pvc-other")); err != nil || info.Size() != 1<<20 {
					t.Errorf("the other became %v, %v", info, err)
				}
			}
			if project, err := p.DraftProject("pvc-his"); err != nil || project != 0 {
				t.Errorf("the link is taken for what has project %d, %v", project, err)
			}
		})
	}
}
