package pool_test

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/slipway-vm/slipway/runtime/hostpath/pool"
	"github.com/slipway-vm/slipway/tests/fixture/need"
)

// TestVolumesOnBtrfsAreHeldToTheirSizes shows it where quotas are enabled, and that volumes work where they are not, or are
// no more.
func TestVolumesOnBtrfsAreHeldToTheirSizes(t *testing.T) {
	need.Root(t, "mount")
	mkfs, btrfs := need.Program(t, "mkfs.btrfs", "btrfs-progs"), need.Program(t, "btrfs", "btrfs-progs")
	dir, _ := mounted(t, "btrfs", []string{mkfs, "-q"})
	p, err := pool.Open("/", "fast", dir)
	check(t, err)
	t.Cleanup(func() { check(t, p.Close()) })
	create(t, p, pool.Record{Name: "before", Capacity: 32 << 20}, nil)
	if record, err := p.Volume("before"); err != nil || record.Subvolume {
		t.Errorf("without quotas the volume is %+v, %v", record, err)
	}
	check(t, asOthers(t, func() error { return fill(filepath.Join(dir, "before/more"), 80<<20) }))
	quotas(t, btrfs, "enable", dir)

	create(t, p, pool.Record{Name: "held", Capacity: 32 << 20}, nil)
	info, err := os.Stat(filepath.Join(dir, "held"))
	if check(t, err); info.Mode().Perm() != 0o777 {
		t.Errorf("the volume is %v", info.Mode())
	}
	check(t, fill(filepath.Join(dir, "held/disk.img"), 32<<20))
	more := func(name string) error {
		return asOthers(t, func() error { return fill(filepath.Join(dir, name, "more"), 80<<20) })
	}
	if err := more("held"); !errors.Is(err, unix.EDQUOT) {
		t.Errorf("writing more than its size gives %v", err)
	}
	check(t, os.Remove(filepath.Join(dir, "held/more")))
	_, err = p.Expand("held", 256<<20)
	check(t, err)
	check(t, more("held"))

	within, err := pool.Open("/", "within", filepath.Join(dir, "held")) // on a claim of the first pool
	check(t, err)
	create(t, within, pool.Record{Name: "inner", Capacity: 512 << 20}, nil)
	if err := asOthers(t, func() error { return fill(filepath.Join(dir, "held/inner/more"), 300<<20) }); !errors.Is(err, unix.EDQUOT) {
		t.Errorf("writing more than the size of the volume that a pool is in gives %v", err)
	}
	check(t, errors.Join(within.DeleteVolume("inner"), within.Close(), os.RemoveAll(filepath.Join(dir, "held/.slipway"))))

	check(t, os.Rename(filepath.Join(dir, "held"), filepath.Join(dir, "aside")))
	check(t, os.Mkdir(filepath.Join(dir, "held"), 0o777)) // as what is brought back from a backup is
	_, err = p.Expand("held", 264<<20)
	check(t, err)
	check(t, asOthers(t, func() error { return fill(filepath.Join(dir, "anywhere"), 300<<20) }))
	check(t, errors.Join(os.Remove(filepath.Join(dir, "anywhere")), os.Remove(filepath.Join(dir, "held")), os.Rename(filepath.Join(dir, "aside"), filepath.Join(dir, "held"))))
	create(t, p, pool.Record{Name: "clone", Capacity: 264 << 20, Source: pool.VolumeSource("held")}, from(t, p.OpenVolume, "held"))
	if got, err := os.Stat(filepath.Join(dir, "clone/disk.img")); err != nil || got.Size() != 32<<20 {
		t.Errorf("the clone has %v, %v", got, err)
	}
	_, _, err = p.CreateSnapshot(t.Context(), "snap", from(t, p.OpenVolume, "held"))
	check(t, err)
	for range 2 {
		check(t, p.MakeDirectory("claim-pvc-1", 32<<20))
	}
	if err := more("claim-pvc-1"); !errors.Is(err, unix.EDQUOT) {
		t.Errorf("writing more than a legacy volume's size gives %v", err)
	}
	quotas(t, btrfs, "disable", dir)
	_, err = p.Expand("clone", 512<<20)
	check(t, errors.Join(err, p.RemoveDirectory("claim-pvc-1"), p.DeleteSnapshot("snap")))
	for _, name := range []string{"before", "held", "clone"} {
		check(t, p.DeleteVolume(name))
	}
	left, err := filepath.Glob(filepath.Join(dir, "[^.]*"))
	if check(t, err); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
	if left, _ := filepath.Glob(filepath.Join(dir, ".slipway/*/*")); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
}

func quotas(t *testing.T, btrfs, verb, dir string) {
	t.Helper()
	if output, err := exec.CommandContext(t.Context(), btrfs, "quota", verb, dir).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, output)
	}
}
