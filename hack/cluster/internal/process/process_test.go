package process

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
	"time"
)

func sleeper(t *testing.T) (Identity, *exec.Cmd) {
	t.Helper()
	cmd := exec.Command("sleep", "1000")
	id, err := Start(cmd, filepath.Join(t.TempDir(), "log"))
	if err != nil {
		t.Fatal(err)
	}
	go func() { _ = cmd.Wait() }()
	t.Cleanup(func() { _ = cmd.Process.Kill() })
	return id, cmd
}

func TestStat(t *testing.T) {
	for name, c := range map[string]struct {
		head, threads string
		ended         bool
	}{
		"a hostile name":        {"42 (a) b) (c) S", "1", false},
		"ended":                 {"42 (sh) Z", "1", true},
		"ended and taken apart": {"42 (sh) Z", "0", true},
		"a thread replaces the program, not the first": {"42 (cluster) Z", "7", false},
		"dead": {"42 (sh) X", "1", true},
	} {
		line := c.head + " 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 " + c.threads + " 18 777 20 21"
		start, ended, err := parseStat([]byte(line))
		if err != nil || start != 777 || ended != c.ended {
			t.Errorf("%s: start %d, ended %t, %v; want 777, %t", name, start, ended, err, c.ended)
		}
	}
}

func TestStopEndsTheProcess(t *testing.T) {
	id, _ := sleeper(t)
	if !id.Alive() {
		t.Fatal("the process that was just started is not alive")
	}
	if err := id.Stop(t.Context(), time.Minute); err != nil {
		t.Fatal(err)
	}
	if id.Alive() {
		t.Error("alive after its end")
	}
}

func TestAnotherProcessWithThePidIsLeftAlone(t *testing.T) {
	id, _ := sleeper(t)
	for name, other := range map[string]Identity{
		"started at another time": {Pid: id.Pid, Start: id.Start + 1, Boot: id.Boot},
		"of another boot":         {Pid: id.Pid, Start: id.Start, Boot: "x"},
	} {
		if other.Alive() {
			t.Errorf("%s: taken for the recorded process", name)
		}
		if err := other.Stop(t.Context(), time.Second); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	if !id.Alive() {
		t.Error("the process was ended in another's name")
	}
}

func TestSuperviseStartsAgainAndAdopts(t *testing.T) {
	dir := t.TempDir()
	records := Records(filepath.Join(dir, "run"))
	components := []Component{{Name: "sleep", Command: []string{"sleep", "1000"}, Log: filepath.Join(dir, "log")}}
	run := func() (stop func()) {
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() {
			Supervise(ctx, records, components, func(string, ...any) {})
			close(done)
		}()
		return func() { cancel(); <-done }
	}
	stop := run()
	first := awaitRecord(t, records, Identity{})
	if err := first.Stop(t.Context(), time.Minute); err != nil {
		t.Fatal(err)
	}
	second := awaitRecord(t, records, first)
	stop()
	if !second.Alive() {
		t.Fatal("the component ended with its supervisor")
	}
	stop = run()
	if third, alive := records.Get("sleep"); !alive || third != second {
		t.Errorf("process %v after a new supervisor, want %v adopted", third, second)
	}
	stop()
	if err := second.Stop(t.Context(), time.Minute); err != nil {
		t.Fatal(err)
	}
}

// awaitRecord returns the live process that is not the old one.
func awaitRecord(t *testing.T, records Records, old Identity) Identity {
	t.Helper()
	for deadline := time.Now().Add(3 * time.Minute); time.Now().Before(deadline); {
		if id, alive := records.Get("sleep"); alive && id != old {
			return id
		}
		time.Sleep(20 * time.Millisecond)
	}
	t.Fatal("no new process comes")
	return Identity{}
}

func TestStartOfWhatDoesNotExist(t *testing.T) {
	if _, err := Start(exec.Command("/no/such/program"), filepath.Join(t.TempDir(), "log")); err == nil {
		t.Error("a missing program started")
	}
}

func TestAllFindsByCommandLine(t *testing.T) {
	id, _ := sleeper(t)
	found := All(func(cmdline []string) bool { return fmt.Sprint(cmdline) == "[sleep 1000]" })
	if slices.Contains(found, id) {
		return
	}
	t.Errorf("%v not among %v (own pid %d)", id, found, os.Getpid())
}
