package pool_test

import (
	"context"
	"crypto/sha256"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/slipway-vm/slipway/runtime/hostpath/pool"
	"github.com/slipway-vm/slipway/tests/fixture/corpus"
)

// cloneInProcess names the pool in which the test's own program, started anew, clones
// pvc-1 to pvc-2 and ends.
const cloneInProcess = "SLIPWAY_TEST_CLONE_IN"

// expandInProcess names the pool in which the test's own program, started anew, expands pvc-1 until it is killed.
const expandInProcess = "SLIPWAY_TEST_EXPAND_IN"

func TestMain(m *testing.M) {
	if dir := os.Getenv(expandInProcess); dir != "" {
		os.Exit(expandIn(dir))
	}
	if dir := os.Getenv(cloneInProcess); dir != "" {
		os.Exit(cloneIn(dir))
	}
	os.Exit(m.Run())
}

func cloneIn(dir string) int {
	p, err := pool.Open("/", "fast", dir)
	if err != nil {
		return 1
	}
	source, err := p.OpenVolume("pvc-1")
	if err != nil {
		return 1
	}
	record := pool.Record{Name: "pvc-2", Capacity: 1 << 30, Source: pool.VolumeSource("pvc-1")}
	if _, _, err := p.CreateVolume(context.Background(), record, &pool.Copy{From: source}); err != nil {
		return 1
	}
	return 0
}

func expandIn(dir string) int {
	p, err := pool.Open("/", "fast", dir)
	if err != nil {
		return 1
	}
	for {
		found, err := p.Volume("pvc-1")
		if err != nil {
			return 1
		}
		if _, err := p.Expand("pvc-1", found.Capacity+expandStep); err != nil {
			return 1
		}
	}
}

// expandStep is by how much the volume grows at once, in bytes.
const expandStep = 1 << 20

func TestAVolumeNeverHasLessThanItsSizeWheneverTheProcessIsKilled(t *testing.T) {
	p, dir := open(t)
	create(t, p, pool.Record{Name: "pvc-1", Block: true, Capacity: expandStep}, nil)
	program, err := os.Executable()
	check(t, err)
	before, start := int64(expandStep), 40*time.Millisecond
	for n := range corpus.Times(12, 100) {
		ctx, cancel := context.WithTimeout(t.Context(), start+time.Duration(7*(n%12))*time.Millisecond)
		cmd := exec.CommandContext(ctx, program)
		cmd.Env = append(os.Environ(), expandInProcess+"="+dir)
		if err := cmd.Run(); ctx.Err() == nil {
			t.Fatalf("the process ended by itself: %v", err)
		}
		cancel()
		found, err := p.Volume("pvc-1")
		check(t, err)
		info, err := os.Stat(filepath.Join(dir, "pvc-1"))
		check(t, err)
		if ahead := info.Size() - found.Capacity; ahead != 0 && ahead != expandStep || found.Capacity < before {
			t.Fatalf("killed for the %d. time, the volume says %d and has %d bytes", n+1, found.Capacity, info.Size())
		}
		if before = found.Capacity; before == expandStep {
			start *= 2 // a busy machine takes longer to start a process
		}
	}
	if before == expandStep {
		t.Error("no process was killed after it had expanded the volume")
	}
}

func TestAVolumeIsWholeOrAbsentWheneverTheProcessIsKilled(t *testing.T) {
	p, dir := open(t)
	create(t, p, pool.Record{Name: "pvc-1", Capacity: 1 << 30}, nil)
	for _, name := range []string{"a", "b", "c"} {
		check(t, os.WriteFile(filepath.Join(dir, "pvc-1", name), make([]byte, 32<<20), 0o600))
	}
	want := sum(t, filepath.Join(dir, "pvc-1"))
	program, err := os.Executable()
	check(t, err)
	delays := make([]time.Duration, corpus.Times(7, 100))
	for n := range delays {
		delays[n] = 5 * time.Millisecond << (n % 7)
	}
	for _, delay := range delays {
		ctx, cancel := context.WithTimeout(t.Context(), delay)
		cmd := exec.CommandContext(ctx, program)
		cmd.Env = append(os.Environ(), cloneInProcess+"="+dir)
		done := cmd.Run() == nil
		cancel()
		_, err := p.Volume("pvc-2")
		switch {
		case done && err != nil:
			t.Fatalf("the process ended well and the volume gives %v", err)
		case err == nil && sum(t, filepath.Join(dir, "pvc-2")) != want:
			t.Fatalf("killed after %v, the volume is there and not whole", delay)
		case err != nil && !errors.Is(err, pool.ErrNotFound):
			t.Fatal(err)
		}
		check(t, p.DeleteVolume("pvc-2"))
	}
	create(t, p, pool.Record{Name: "pvc-2", Capacity: 1 << 30, Source: pool.VolumeSource("pvc-1")}, from(t, p.OpenVolume, "pvc-1"))
	if sum(t, filepath.Join(dir, "pvc-2")) != want {
		t.Error("the volume made after the kills is not whole")
	}
}

func TestRestsOfACrashDoNotCountAndAreSwept(t *testing.T) {
	p, dir := open(t)
	create(t, p, pool.Record{Name: "pvc-1", Capacity: 1}, nil)
	half := filepath.Join(dir, ".slipway/new/pvc-2")
	check(t, os.MkdirAll(half, 0o700))
	check(t, os.WriteFile(filepath.Join(half, "disk.img"), []byte("half"), 0o600))
	check(t, os.WriteFile(filepath.Join(dir, ".slipway/volumes/pvc-2.json"), []byte(`{"name":"pvc-2","capacity":7}`), 0o600))
	removed := filepath.Join(dir, ".slipway/trash/pvc-3@1/deep")
	check(t, os.MkdirAll(removed, 0o700))

	if _, err := p.Volume("pvc-2"); !errors.Is(err, pool.ErrNotFound) {
		t.Errorf("the half volume gives %v", err)
	}
	create(t, p, pool.Record{Name: "pvc-2", Capacity: 5}, nil)
	if got := get(t, filepath.Join(dir, "pvc-2/disk.img")); got != "" {
		t.Errorf("the volume holds %q of the attempt before", got)
	}
	check(t, p.Sweep())
	if left, _ := filepath.Glob(filepath.Join(dir, ".slipway/trash/*")); len(left) != 0 {
		t.Errorf("left: %v", left)
	}
	if _, err := p.Volume("pvc-1"); err != nil {
		t.Errorf("the sweep took a volume: %v", err)
	}
}

// sum is a digest of the names and contents of the files in dir.
func sum(t *testing.T, dir string) string {
	t.Helper()
	hash := sha256.New()
	entries, err := os.ReadDir(dir)
	check(t, err)
	for _, entry := range entries {
		file, err := os.Open(filepath.Join(dir, entry.Name()))
		check(t, err)
		_, err = io.WriteString(hash, entry.Name())
		check(t, err)
		_, err = io.Copy(hash, file)
		check(t, errors.Join(err, file.Close()))
	}
	return string(hash.Sum(nil))
}
