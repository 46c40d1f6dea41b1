package pool_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/slipway-vm/slipway/runtime/hostpath/pool"
	"github.com/slipway-vm/slipway/tests/fixture/corpus"
)

// expandInProcess names the pool in which the test's own program, started anew, expands pvc-1 until it is killed.
const expandInProcess = "SLIPWAY_TEST_EXPAND_IN"

func TestMain(m *testing.M) {
	if dir := os.Getenv(expandInProcess); dir != "" {
		os.Exit(expandIn(dir))
	}
	if dir := os.Getenv(makeInProcess); dir != "" {
		if err := makeIn(dir); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
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
		fmt.Println(found.Capacity)
	}
}

// expandStep is by how much the volume grows at once, in bytes.
const expandStep = 1 << 20

// expandFor has pvc-1 expanded by a process of its own, which is killed so long after it has done so for the first time.
func expandFor(t *testing.T, program, dir string, after time.Duration) {
	t.Helper()
	ctx, kill := context.WithCancel(t.Context())
	defer kill()
	cmd := exec.CommandContext(ctx, program)
	cmd.Env = append(os.Environ(), expandInProcess+"="+dir)
	said, err := cmd.StdoutPipe()
	check(t, errors.Join(err, cmd.Start()))
	_, err = said.Read(make([]byte, 1))
	check(t, err)
	time.AfterFunc(after, kill)
	if _, err := io.Copy(io.Discard, said); ctx.Err() == nil {
		t.Fatalf("the process ended by itself: %v, %v", err, cmd.Wait())
	}
	_ = cmd.Wait() // it was killed
}

func TestAVolumeNeverHasLessThanItsSizeWheneverTheProcessIsKilled(t *testing.T) {
	p, dir := open(t)
	create(t, p, pool.Record{Name: "pvc-1", Block: true, Capacity: expandStep}, nil)
	program, err := os.Executable()
	check(t, err)
	random := rand.New(rand.NewPCG(corpus.From(t), 1))
	var before int64
	for n := range corpus.Times(12, 100) {
		expandFor(t, program, dir, time.Duration(random.Int64N(int64(80*time.Millisecond))))
		found, err := p.Volume("pvc-1")
		check(t, err)
		info, err := os.Stat(filepath.Join(dir, "pvc-1"))
		check(t, err)
		if ahead := info.Size() - found.Capacity; ahead != 0 && ahead != expandStep || found.Capacity < before {
			t.Fatalf("killed for the %d. time, the volume says %d and has %d bytes", n+1, found.Capacity, info.Size())
		}
		before = found.Capacity
	}
	if before == expandStep {
		t.Error("no process was killed after it had expanded the volume")
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
