package process_test

import (
	"context"
	"os/exec"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/slipway-vm/slipway/runtime/launcher/process"
)

func TestOrphansAreCollectedAndChildrenKeepTheirExit(t *testing.T) {
	table, err := process.NewTable()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0) })
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan unix.WaitStatus, 64)
	var reaping sync.WaitGroup
	reaping.Go(func() { table.Reap(ctx, func(_ int, status unix.WaitStatus) { ended <- status }) })
	defer reaping.Wait()
	defer cancel()
	for range 10 {
		// A child that leaves an orphan behind, which ends after it.
		cmd := exec.Command("sh", "-c", "(sleep 0.05; exit 9) & exit 3")
		if err := table.Start(cmd); err != nil {
			t.Fatal(err)
		}
		_ = table.Wait(cmd)
		if code := cmd.ProcessState.ExitCode(); code != 3 {
			t.Errorf("the child's exit code is %d, want 3", code)
		}
		select {
		case status := <-ended:
			if status.ExitStatus() != 9 {
				t.Errorf("the orphan's exit code is %d, want 9", status.ExitStatus())
			}
		case <-time.After(time.Minute):
			t.Fatal("the orphan was not collected")
		}
	}
}
