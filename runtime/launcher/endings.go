package launcher

import (
	"context"
	"fmt"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// endingPatience is how long the end of a process that libvirt reported may stay unseen: on a busy node its last thread may wait
// for a processor.
const endingPatience = 10 * time.Second

// endings remembers how the processes ended that nobody but PID 1 collects; QEMU is
// one of them.
type endings struct {
	mu    sync.Mutex
	seen  map[int]unix.WaitStatus
	fresh chan struct{} // closed and made anew at each ending
}

func newEndings() *endings {
	return &endings{seen: map[int]unix.WaitStatus{}, fresh: make(chan struct{})}
}

func (e *endings) note(pid int, status unix.WaitStatus) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if len(e.seen) > 64 {
		clear(e.seen) // probes of long ago
	}
	e.seen[pid] = status
	close(e.fresh)
	e.fresh = make(chan struct{})
}

// of describes how pid ended, waiting a moment for it; empty when that is not known.
func (e *endings) of(ctx context.Context, pid int) string {
	ctx, cancel := context.WithTimeout(ctx, endingPatience)
	defer cancel()
	status, ok := e.await(ctx, pid)
	switch {
	case !ok:
		return ""
	case status.Signaled() && status.Signal() == unix.SIGKILL:
		return "QEMU was killed by signal 9; the usual cause is the memory limit of the pod"
	case status.Signaled():
		return fmt.Sprintf("QEMU was ended by signal %d (%s)", status.Signal(), status.Signal())
	}
	return fmt.Sprintf("QEMU exited with code %d", status.ExitStatus())
}

// await waits until pid has ended; false when ctx is done before.
func (e *endings) await(ctx context.Context, pid int) (unix.WaitStatus, bool) {
	for {
		e.mu.Lock()
		status, ok := e.seen[pid]
		fresh := e.fresh
		e.mu.Unlock()
		if ok {
			return status, true
		}
		select {
		case <-ctx.Done():
			return 0, false
		case <-fresh:
		}
	}
}
