package pool_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/slipway-vm/slipway/runtime/hostpath/pool"
	"github.com/slipway-vm/slipway/tests/fixture/corpus"
)

// In the environment of the test's own program, started anew, makeInProcess names the pool in which it makes of pvc-1 a
// clone, a snapshot, and a volume from that, then removes the latter two and ends. With stopAfter it is killed after so many
// steps that a crash does not undo.
const (
	makeInProcess = "SLIPWAY_TEST_MAKE_IN"
	stopAfter     = "SLIPWAY_TEST_STOP_AFTER"
)

func makeIn(dir string) error {
	p, err := pool.Open("/", "fast", dir)
	if err != nil {
		return err
	}
	if left, err := strconv.Atoi(os.Getenv(stopAfter)); err == nil {
		p.AfterStep(func() {
			if left--; left == 0 {
				_ = unix.Kill(os.Getpid(), unix.SIGKILL)
				select {}
			}
		})
	}
	if err := copyTo(p.OpenVolume, "pvc-1", func(from *pool.Copy) error {
		clone := pool.Record{Name: "pvc-2", Block: from.From.Record.Block, Capacity: copySize, Source: pool.VolumeSource("pvc-1")}
		_, _, err := p.CreateVolume(context.Background(), clone, from)
		return err
	}); err != nil {
		return err
	}
	if err := copyTo(p.OpenVolume, "pvc-1", func(from *pool.Copy) error {
		_, _, err := p.CreateSnapshot(context.Background(), "snap-1", from)
		return err
	}); err != nil {
		return err
	}
	if err := copyTo(p.OpenSnapshot, "snap-1", func(from *pool.Copy) error {
		restored := pool.Record{Name: "pvc-3", Block: from.From.Record.Block, Capacity: copySize, Source: pool.SnapshotSource("snap-1")}
		_, _, err := p.CreateVolume(context.Background(), restored, from)
		return err
	}); err != nil {
		return err
	}
	return errors.Join(p.DeleteVolume("pvc-3"), p.DeleteSnapshot("snap-1"))
}

// copyTo has the open data called name copied.
func copyTo(open func(string) (*pool.Content, error), name string, to func(*pool.Copy) error) error {
	from, err := open(name)
	if err != nil {
		return err
	}
	return errors.Join(to(&pool.Copy{From: from}), from.Close())
}

// copySize is the size of the volume that is copied, and of its copies, in bytes.
const copySize = 12 << 20

// newSource makes pvc-1, and returns what is in it.
func newSource(t *testing.T, p *pool.Pool, dir string, block bool) (want string) {
	t.Helper()
	create(t, p, pool.Record{Name: "pvc-1", Block: block, Capacity: copySize}, nil)
	at := filepath.Join(dir, "pvc-1")
	names := []string{at + "/a", at + "/b", at + "/c"}
	if block {
		names = []string{at}
	}
	for n, name := range names {
		file, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE, 0o600)
		check(t, err)
		_, err = file.WriteAt(bytes.Repeat([]byte{byte(n + 1)}, copySize/4), 4096)
		check(t, errors.Join(err, file.Close()))
	}
	return sum(t, at)
}

// wantWholeOrAbsent checks what a process has made that was killed, and that its source is as it was.
func wantWholeOrAbsent(t *testing.T, p *pool.Pool, dir, want, when string) {
	t.Helper()
	for name, look := range map[string]func(string) (pool.Record, error){
		"pvc-1": p.Volume, "pvc-2": p.Volume, "pvc-3": p.Volume, ".slipway/snapshots/snap-1": p.Snapshot,
	} {
		_, err := look(filepath.Base(name))
		switch {
		case errors.Is(err, pool.ErrNotFound) && name != "pvc-1":
		case err != nil:
			t.Fatalf("%s, %s gives %v", when, name, err)
		case sum(t, filepath.Join(dir, name)) != want:
			t.Fatalf("%s, %s is there and not whole", when, name)
		}
	}
}

// makeFor makes the copies in a process of its own, which is killed after that time, or, when it is not 0, after so many steps. It
// says whether the process was through before.
func makeFor(t *testing.T, dir string, after time.Duration, steps int) (through bool) {
	t.Helper()
	program, err := os.Executable()
	check(t, err)
	var out bytes.Buffer
	cmd := exec.Command(program)
	cmd.Stdout, cmd.Stderr = &out, &out
	cmd.Env = append(os.Environ(), makeInProcess+"="+dir)
	if steps > 0 {
		cmd.Env = append(cmd.Env, fmt.Sprintf("%s=%d", stopAfter, steps))
	}
	check(t, cmd.Start())
	timer := time.AfterFunc(after, func() { _ = cmd.Process.Kill() }) // it may be through
	defer timer.Stop()
	err = cmd.Wait()
	exit, _ := errors.AsType[*exec.ExitError](err)
	if err != nil && (exit == nil || exit.ExitCode() >= 0) {
		t.Fatalf("the process failed: %v\n%s", err, &out)
	}
	return err == nil
}

// never is a time after which no process is still at work.
const never = 5 * time.Minute

// modes are the kinds of volumes: whether they are one disk.
var modes = map[string]bool{"files": false, "disk": true}

func TestCopiesAreWholeOrAbsentWheneverTheProcessIsKilled(t *testing.T) {
	seed := corpus.From(t)
	for mode, block := range modes {
		t.Run(mode, func(t *testing.T) {
			p, dir := open(t)
			want := newSource(t, p, dir, block)
			random := rand.New(rand.NewPCG(seed, 2))
			begun := time.Now()
			makeFor(t, dir, never, 0)
			whole := time.Since(begun)
			check(t, p.DeleteVolume("pvc-2"))
			killed := 0
			for n := 0; n < corpus.Times(6, 60) || killed == 0 && n < 1000; n++ {
				delay := 1 + time.Duration(random.Int64N(int64(whole)))
				begun := time.Now()
				if !makeFor(t, dir, delay, 0) {
					killed++
				} else { // the one that was measured may have waited for a processor
					whole = min(whole, time.Since(begun))
				}
				wantWholeOrAbsent(t, p, dir, want, fmt.Sprintf("killed after %v of %v", delay, whole))
				if random.IntN(2) == 0 { // else the next process finds what this one left
					check(t, errors.Join(p.DeleteVolume("pvc-2"), p.DeleteVolume("pvc-3"), p.DeleteSnapshot("snap-1")))
				}
			}
			if killed == 0 {
				t.Errorf("no process was killed before it was through, which takes %v", whole)
			}
			wantWhole(t, p, dir, want)
		})
	}
}

func TestCopiesAreWholeOrAbsentWhicheverStepTheProcessIsStoppedAfter(t *testing.T) {
	stride := corpus.Times(3, 1) // the short part stops after every third step
	first := 1 + int(corpus.From(t)%uint64(stride))
	for mode, block := range modes {
		t.Run(mode, func(t *testing.T) {
			p, dir := open(t)
			want := newSource(t, p, dir, block)
			steps := first
			for ; !makeFor(t, dir, never, steps); steps += stride {
				wantWholeOrAbsent(t, p, dir, want, fmt.Sprintf("stopped after step %d", steps))
				wantWhole(t, p, dir, want)
				check(t, p.DeleteVolume("pvc-2"))
			}
			if steps < 15 { // a directory's sync and a rename for each of records and data, made thrice and removed twice
				t.Errorf("it was through before step %d", steps)
			}
		})
	}
}

// wantWhole lets the next process finish, and checks that the clone is whole and nothing else is left.
func wantWhole(t *testing.T, p *pool.Pool, dir, want string) {
	t.Helper()
	makeFor(t, dir, never, 0)
	if sum(t, filepath.Join(dir, "pvc-2")) != want {
		t.Fatal("the clone made after a crash is not whole")
	}
	check(t, p.Sweep())
	for _, pattern := range []string{"pvc-3", ".slipway/new/*", ".slipway/trash/*", ".slipway/snapshots/*", ".slipway/snapshot-records/*"} {
		if left, err := filepath.Glob(filepath.Join(dir, pattern)); err != nil || len(left) > 0 {
			t.Fatalf("%v is left (%v)", left, err)
		}
	}
}

// sum is a digest of the names and contents of the files in a directory, or of a file's content.
func sum(t *testing.T, path string) string {
	t.Helper()
	hash := sha256.New()
	check(t, filepath.WalkDir(path, func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		file, err := os.Open(name)
		if err != nil {
			return err
		}
		defer file.Close()
		if _, err = io.WriteString(hash, strings.TrimPrefix(name, path)); err != nil {
			return err
		}
		_, err = io.Copy(hash, file)
		return err
	}))
	return string(hash.Sum(nil))
}
