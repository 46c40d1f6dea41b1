package pool_test

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/slipway-vm/slipway/runtime/hostpath/loopdev"
	"github.com/slipway-vm/slipway/runtime/hostpath/pool"
	"github.com/slipway-vm/slipway/runtime/hostpath/quota"
	"github.com/slipway-vm/slipway/tests/fixture/need"
)

// TestSizesOfVolumesOfFiles shows that volumes are held to their size where the kernel has project
// quotas for the file system, and that they are thin, and work, where it has none.
func TestSizesOfVolumesOfFiles(t *testing.T) {
	for _, kind := range []struct {
		fileSystem, debian string
		options            []string
	}{
		{"xfs", "xfsprogs", []string{"-q", "-m", "reflink=1"}},
		{"ext4", "e2fsprogs", []string{"-q", "-O", "project,quota", "-E", "quotatype=prjquota"}},
	} {
		t.Run(kind.fileSystem, func(t *testing.T) {
			need.Root(t, "mount")
			mkfs := need.Program(t, "mkfs."+kind.fileSystem, kind.debian)
			dir, enforced := mounted(t, kind.fileSystem, append([]string{mkfs}, kind.options...))
			p, err := pool.Open("/", "fast", dir)
			check(t, err)
			t.Cleanup(func() { check(t, p.Close()) })
			at, err := os.Open(dir)
			check(t, err)
			t.Cleanup(func() { check(t, at.Close()) })
			if got, err := quota.Enforced(at); err != nil || got != enforced {
				t.Fatalf("quotas are enforced: %v, %v; want %v", got, err, enforced)
			}
			t.Logf("the kernel holds projects of %s to their limits: %v", kind.fileSystem, enforced)
			for name, run := range map[string]func(*testing.T, limited){
				"a volume takes its size and no more, until it is expanded": held,
				"a copy that does not fit says so and leaves nothing":       notFitting,
				"a clone counts in full, a snapshot not at all":             copied,
				"what a crash leaves of limits goes":                        afterCrash,
				"a pool within a volume leaves that its limit":              withinVolume,
				"a directory without a record is held, too, but no other":   directoryHeld,
			} {
				t.Run(name, func(t *testing.T) { run(t, limited{p, dir, at, enforced, kind.fileSystem == "ext4"}) })
			}
		})
	}
}

// limited is a pool, its directory, and whether its volumes are held to their sizes.
type limited struct {
	*pool.Pool
	dir      string
	at       *os.File
	enforced bool
	// lenient file systems let root past limits, and so copies that root makes.
	lenient bool
}

func held(t *testing.T, l limited) {
	create(t, l.Pool, pool.Record{Name: "held", Capacity: 32 << 20}, nil)
	check(t, fill(filepath.Join(l.dir, "held/disk.img"), 32<<20))
	err := asOthers(t, func() error { return fill(filepath.Join(l.dir, "held/more"), 80<<20) })
	if full := errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT); full != l.enforced {
		t.Fatalf("writing more than its size gives %v", err)
	}
	check(t, os.Remove(filepath.Join(l.dir, "held/more")))
	if total := total(t, filepath.Join(l.dir, "held")); l.enforced && (total < 32<<20 || total > 64<<20) {
		t.Errorf("the volume shows as %d bytes", total)
	}
	_, err = l.Expand("held", 128<<20)
	check(t, err)
	check(t, asOthers(t, func() error { return fill(filepath.Join(l.dir, "held/more"), 80<<20) }))
	project := l.project(t, "held")
	check(t, l.DeleteVolume("held"))
	if used, err := quota.Of(l.at, project); l.enforced && (err != nil || used.Limit != 0) {
		t.Errorf("of the deleted volume is left %+v, %v", used, err)
	}
}

func notFitting(t *testing.T, l limited) {
	check(t, os.Mkdir(filepath.Join(l.dir, "foreign"), 0o777)) // without a record, as of another driver
	for _, name := range []string{"foreign/a", "foreign/b"} {
		check(t, fill(filepath.Join(l.dir, name), 60<<20))
	}
	record := pool.Record{Name: "not-fitting", Capacity: 32 << 20, Source: pool.VolumeSource("foreign")}
	_, _, err := l.CreateVolume(t.Context(), record, from(t, l.OpenVolume, "foreign"))
	if want := l.enforced && !l.lenient; errors.Is(err, pool.ErrTooSmall) != want || errors.Is(err, unix.ENOSPC) {
		t.Errorf("got %v, want ErrTooSmall: %v", err, want)
	}
	if left, _ := filepath.Glob(filepath.Join(l.dir, ".slipway/new/*")); len(left) != 0 {
		t.Errorf("left: %v", left)
	}
	check(t, errors.Join(l.DeleteVolume("foreign"), l.DeleteVolume("not-fitting")))
}

func copied(t *testing.T, l limited) {
	create(t, l.Pool, pool.Record{Name: "golden", Capacity: 32 << 20}, nil)
	check(t, fill(filepath.Join(l.dir, "golden/disk.img"), 24<<20))
	create(t, l.Pool, pool.Record{Name: "clone", Capacity: 64 << 20, Source: pool.VolumeSource("golden")}, from(t, l.OpenVolume, "golden"))
	_, _, err := l.CreateSnapshot(t.Context(), "snap", from(t, l.OpenVolume, "golden"))
	check(t, err)
	if snapshot, err := l.Snapshot("snap"); err != nil || snapshot.Project != 0 {
		t.Errorf("the snapshot is %+v, %v", snapshot, err)
	}
	if l.enforced {
		golden, clone := l.project(t, "golden"), l.project(t, "clone")
		used, err := quota.Of(l.at, clone)
		if check(t, err); golden == clone || used.Bytes < 24<<20 || used.Bytes > 26<<20 {
			t.Errorf("projects %d and %d, the clone holds %+v", golden, clone, used)
		}
	}
	check(t, errors.Join(l.DeleteVolume("golden"), l.DeleteVolume("clone"), l.DeleteSnapshot("snap")))
}

// afterCrash leaves a draft with its project, as a process that is killed while it copies.
func afterCrash(t *testing.T, l limited) {
	create(t, l.Pool, pool.Record{Name: "crashed", Capacity: 32 << 20}, nil)
	project := l.project(t, "crashed")
	draft := filepath.Join(l.dir, ".slipway/new/crashed")
	check(t, os.Rename(filepath.Join(l.dir, "crashed"), draft))
	create(t, l.Pool, pool.Record{Name: "crashed", Capacity: 48 << 20}, nil)
	check(t, os.Rename(filepath.Join(l.dir, "crashed"), draft))
	check(t, l.Sweep())
	if used, err := quota.Of(l.at, project); l.enforced && (err != nil || used.Limit != 0) {
		t.Errorf("the sweep leaves %+v, %v", used, err)
	}
	check(t, l.DeleteVolume("crashed"))
}

// withinVolume has a pool on a claim of this one remove what it could not complete.
func withinVolume(t *testing.T, l limited) {
	create(t, l.Pool, pool.Record{Name: "outer", Capacity: 64 << 20}, nil)
	project := l.project(t, "outer")
	limit := func() int64 {
		used, err := quota.Of(l.at, project)
		check(t, err)
		return used.Limit
	}
	before := int64(0)
	if l.enforced {
		before = limit()
	}
	dir := filepath.Join(l.dir, "outer")
	inner, err := pool.Open("/", "inner", dir)
	check(t, err)
	defer inner.Close()
	create(t, inner, pool.Record{Name: "crashed", Capacity: 32 << 20}, nil)
	if record, err := inner.Volume("crashed"); err != nil || record.Project != 0 {
		t.Errorf("the volume is %+v, %v", record, err)
	}
	check(t, os.Rename(filepath.Join(dir, "crashed"), filepath.Join(dir, ".slipway/new/crashed")))
	check(t, inner.Sweep())
	if l.enforced && (before == 0 || limit() != before) {
		t.Errorf("the limit of the volume that the pool is in is %d, and was %d", limit(), before)
	}
	check(t, l.DeleteVolume("outer"))
}

func directoryHeld(t *testing.T, l limited) {
	for range 2 { // also when a crash cut the first attempt short
		check(t, l.MakeDirectory("claim-pvc-1", 32<<20))
	}
	check(t, l.MakeDirectory("claim-pvc-2", 32<<20))
	err := asOthers(t, func() error { return fill(filepath.Join(l.dir, "claim-pvc-1/disk.img"), 80<<20) })
	if full := errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT); full != l.enforced {
		t.Fatalf("writing more than its size gives %v", err)
	}
	project := func(name string) uint32 {
		dir, err := os.Open(filepath.Join(l.dir, name))
		check(t, err)
		defer dir.Close()
		number, err := quota.Project(dir)
		check(t, err)
		return number
	}
	first, second := project("claim-pvc-1"), project("claim-pvc-2")
	if (first != 0) != l.enforced || l.enforced && first == second {
		t.Errorf("the projects are %d and %d", first, second)
	}
	check(t, l.RemoveDirectory("claim-pvc-1"))
	if !l.enforced {
		check(t, l.RemoveDirectory("claim-pvc-2"))
		return
	}
	gone, goneErr := quota.Of(l.at, first)
	stays, staysErr := quota.Of(l.at, second)
	if goneErr != nil || staysErr != nil || gone.Limit != 0 || stays.Limit == 0 {
		t.Errorf("the limits are %+v and %+v, %v, %v", gone, stays, goneErr, staysErr)
	}
	check(t, l.RemoveDirectory("claim-pvc-2"))
}

// project is a volume's, which it has exactly where sizes are enforced.
func (l limited) project(t *testing.T, name string) uint32 {
	t.Helper()
	record, err := l.Volume(name)
	check(t, err)
	dir, err := os.Open(filepath.Join(l.dir, name))
	check(t, err)
	defer dir.Close()
	project, err := quota.Project(dir)
	if check(t, err); project != record.Project || (project != 0) != l.enforced {
		t.Errorf("volume %s is of project %d, its record says %d", name, project, record.Project)
	}
	return project
}

// mounted is a new file system, with project quotas if the kernel has them, that is gone with the test.
func mounted(t *testing.T, kind string, mkfs []string) (dir string, enforced bool) {
	t.Helper()
	image := filepath.Join(t.TempDir(), "image")
	file, err := os.Create(image)
	check(t, err)
	check(t, file.Truncate(1<<30))
	output, err := exec.CommandContext(t.Context(), mkfs[0], append(mkfs[1:], image)...).CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, output)
	}
	devices := loopdev.Devices{Dir: "/dev", Sys: "/sys"}
	device, err := devices.Attach(file)
	check(t, err)
	dir, enforced = t.TempDir(), true
	err = unix.Mount(device, dir, kind, 0, "prjquota")
	if err != nil { // the kernel was built without; ext4 then only reads what was made for them
		enforced = false
		if kind == "ext4" {
			output, err := exec.CommandContext(t.Context(), mkfs[0], "-q", "-F", image).CombinedOutput()
			if err != nil {
				t.Fatalf("%v: %s", err, output)
			}
		}
		check(t, unix.Mount(device, dir, kind, 0, ""))
	}
	t.Cleanup(func() {
		check(t, unix.Unmount(dir, unix.MNT_DETACH))
		check(t, devices.Detach(file))
		check(t, file.Close())
	})
	return dir, enforced
}

// fill writes that many bytes, and that they are safe.
func fill(path string, bytes int64) error {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer file.Close()
	chunk := make([]byte, 1<<20)
	for i := range chunk {
		chunk[i] = byte(i) | 1
	}
	for offset := int64(0); offset < bytes; offset += int64(len(chunk)) {
		if _, err := file.WriteAt(chunk, offset); err != nil {
			return err
		}
	}
	return file.Sync()
}

// asOthers runs what without root's privilege to exceed limits (CAP_SYS_RESOURCE), which no guest has.
func asOthers(t *testing.T, what func() error) error {
	t.Helper()
	const capSysResource = 24
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var all [2]unix.CapUserData
	check(t, unix.Capget(&header, &all[0]))
	fewer := all
	fewer[0].Effective &^= 1 << capSysResource
	check(t, unix.Capset(&header, &fewer[0]))
	err := what()
	check(t, unix.Capset(&header, &all[0]))
	return err
}

// total is the size of the file system that dir shows.
func total(t *testing.T, dir string) int64 {
	t.Helper()
	var stat unix.Statfs_t
	check(t, unix.Statfs(dir, &stat))
	return int64(stat.Blocks) * stat.Frsize
}
