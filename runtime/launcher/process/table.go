// Package process starts the launcher's children and, because the launcher is PID 1
// of its pod, collects every other process that ends there: libvirt stalls on the
// zombies of its probes otherwise. Children started here are left to their own Wait.
package process

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"sync"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Table knows which processes are the launcher's own children.
type Table struct {
	mu  sync.Mutex
	own map[int]bool
	// again wakes Reap after an own child was waited for, which may have hidden others.
	again chan struct{}
}

// NewTable returns an empty table. A launcher that is not PID 1 (in tests) becomes
// the reaper of its descendants.
func NewTable() (*Table, error) {
	if os.Getpid() != 1 {
		if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
			return nil, fmt.Errorf("becoming the reaper of descendants: %w", err)
		}
	}
	return &Table{own: map[int]bool{}, again: make(chan struct{}, 1)}, nil
}

// Start starts a child that Wait must be called for.
func (t *Table) Start(cmd *exec.Cmd) error {
	t.mu.Lock() // so that Reap cannot see the child before it is known
	defer t.mu.Unlock()
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("starting %s: %w", cmd.Path, err)
	}
	t.own[cmd.Process.Pid] = true
	return nil
}

// Wait waits for a child of Start and returns how it ended.
func (t *Table) Wait(cmd *exec.Cmd) error {
	err := cmd.Wait()
	t.mu.Lock()
	delete(t.own, cmd.Process.Pid)
	t.mu.Unlock()
	select {
	case t.again <- struct{}{}:
	default:
	}
	return err //nolint:wrapcheck // it is the answer: how the child ended
}

// Ending is how a process ended.
type Ending struct {
	PID int
	// Program is the kernel's name of it, 15 bytes at most; empty when it has none to tell.
	Program string
	Status  unix.WaitStatus
}

// Reap collects ended processes that are not own children until ctx is done, and
// reports each to ended.
func (t *Table) Reap(ctx context.Context, ended func(Ending)) {
	children := make(chan os.Signal, 1)
	signal.Notify(children, unix.SIGCHLD)
	defer signal.Stop(children)
	for {
		for t.reapOne(ended) {
		}
		select {
		case <-ctx.Done():
			return
		case <-children:
		case <-t.again:
		}
	}
}

// reapOne collects one process; false when there is none to collect now.
func (t *Table) reapOne(ended func(Ending)) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	pid, err := endedChild()
	if err != nil || pid == 0 || t.own[pid] {
		return false
	}
	program, _ := os.ReadFile(fmt.Sprintf("/proc/%d/comm", pid)) // of a zombie, too
	ending := Ending{PID: pid, Program: strings.TrimSpace(string(program))}
	if _, err := unix.Wait4(pid, &ending.Status, unix.WNOHANG, nil); err != nil {
		return false
	}
	ended(ending)
	return true
}

// endedChild looks for a zombie and leaves it in place; 0 for none.
func endedChild() (int, error) {
	var info childInfo
	err := unix.Waitid(unix.P_ALL, 0, (*unix.Siginfo)(unsafe.Pointer(&info)), unix.WEXITED|unix.WNOHANG|unix.WNOWAIT, nil)
	if err != nil {
		return 0, err //nolint:wrapcheck // of one system call, and ECHILD is usual
	}
	return int(info.pid), nil
}

// childInfo is the kernel's siginfo_t on 64-bit machines, as waitid fills it.
type childInfo struct {
	_   [4]int32 // signal, errno, code, padding
	pid int32
	_   [108]byte
}
