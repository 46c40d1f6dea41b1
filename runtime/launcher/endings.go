package launcher

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/slipway-vm/slipway/runtime/launcher/process"
)

// endingPatience is how long the end of a process that libvirt reported may stay unseen: on a busy node its last thread may wait
// for a processor.
const endingPatience = 10 * time.Second

// qemuProgram begins the kernel's name of QEMU's process.
const qemuProgram = "qemu-system"

// endings remembers how the processes ended that nobody but PID 1 collects; QEMU is
// one of them.
type endings struct {
	mu    sync.Mutex
	seen  map[int]unix.WaitStatus
	fresh chan struct{} // closed and made anew at each ending
	// blown is the last QEMU that a signal ended, and when that was seen; nobody asked for it by that signal.
	blown   unix.WaitStatus
	blownAt time.Time
}

func newEndings() *endings {
	return &endings{seen: map[int]unix.WaitStatus{}, fresh: make(chan struct{})}
}

func (e *endings) note(ending process.Ending) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if len(e.seen) > 64 {
		clear(e.seen) // probes of long ago
	}
	e.seen[ending.PID] = ending.Status
	if strings.HasPrefix(ending.Program, qemuProgram) && ending.Status.Signaled() {
		e.blown, e.blownAt = ending.Status, time.Now()
	}
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
		return signalled(status)
	}
	return fmt.Sprintf("QEMU exited with code %d", status.ExitStatus())
}

// ofStart describes how a QEMU ended whose start, begun at a time, failed before its number was known; empty when no signal ended it.
// Libvirt, which has waited for that end, may have ended it itself.
func (e *endings) ofStart(began time.Time) string {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.blownAt.Before(began) {
		return ""
	}
	return signalled(e.blown)
}

func signalled(status unix.WaitStatus) string {
	return fmt.Sprintf("QEMU was ended by signal %d (%s)", status.Signal(), status.Signal())
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
