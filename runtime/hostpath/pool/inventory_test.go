package pool_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/slipway-vm/slipway/runtime/hostpath/pool"
)

func TestTheInventoryLeavesOutWhatIsNoVolume(t *testing.T) {
	p, dir := open(t)
	if got, err := p.Inventory(); err != nil || got != (pool.Inventory{}) {
		t.Errorf("a new pool has %+v, %v", got, err)
	}
	create(t, p, pool.Record{Name: "pvc-1", Capacity: 5}, nil)
	create(t, p, pool.Record{Name: "pvc-2", Block: true, Capacity: 1 << 20}, nil)
	check(t, os.Mkdir(filepath.Join(dir, "lost+found"), 0o700))
	check(t, os.Mkdir(filepath.Join(dir, "pvc-old"), 0o700)) // of another driver, of no known size
	_, _, err := p.CreateSnapshot(t.Context(), "snap-1", from(t, p.OpenVolume, "pvc-1"))
	check(t, err)
	if got, err := p.Inventory(); err != nil || got != (pool.Inventory{Volumes: 3, Snapshots: 1, Promised: 1<<20 + 5}) {
		t.Errorf("got %+v, %v", got, err)
	}
}
