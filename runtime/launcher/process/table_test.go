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
	ended := make(chan process.Ending, 64)
	var reaping sync.WaitGroup
	reaping.Go(func() { table.Reap(ctx, func(e process.Ending) { ended <- e }) })
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
		case orphan := <-ended:
			if orphan.Status.ExitStatus() != 9 || orphan.Program != "sh" {
				t.Errorf("the orphan %s ended with code %d, want sh with 9", orphan.Program, orphan.Status.ExitStatus())
			}
		case <-time.After(time.Minute):
			t.Fatal("the orphan was not collected")
		}
	}
}
