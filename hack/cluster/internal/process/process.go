// Package process starts, recognises and ends processes by their pid together
// with their start time, so that a pid that the kernel gave to another process
// meanwhile is never taken for the old one.
package process

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Identity names one process for the life of the machine.
type Identity struct {
	// Pid is the process id.
	Pid int `json:"pid"`
	// Start is the start time in clock ticks after boot, field 22 of /proc/PID/stat.
	Start uint64 `json:"start"`
	// Boot is the kernel's boot id at that time.
	Boot string `json:"boot"`
}

// BootID is the identifier of the running boot.
func BootID() string {
	b, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(b))
}

// Identify returns the identity of the process that has the pid now.
func Identify(pid int) (Identity, error) {
	b, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "stat"))
	if err != nil {
		return Identity{}, fmt.Errorf("reading the start time of process %d: %w", pid, err)
	}
	start, ended, err := parseStat(b)
	if err != nil {
		return Identity{}, fmt.Errorf("reading the start time of process %d: %w", pid, err)
	}
	if ended {
		return Identity{}, fmt.Errorf("process %d has ended: %w", pid, os.ErrProcessDone)
	}
	return Identity{Pid: pid, Start: start, Boot: BootID()}, nil
}

// parseStat takes the start time out of a stat line, whose second field is a name that may
// hold blanks and parentheses, and whether the process has ended. A first thread that has
// ended is not the end while there are others: when one of them replaces the program, the
// first is a zombie for a moment. See proc_pid_stat(5).
func parseStat(line []byte) (start uint64, ended bool, err error) {
	end := bytes.LastIndexByte(line, ')')
	if end < 0 {
		return 0, false, errors.New("no process name in it")
	}
	fields := strings.Fields(string(line[end+1:]))
	if len(fields) < 20 {
		return 0, false, fmt.Errorf("only %d fields after the name", len(fields))
	}
	state, threads := fields[0], fields[17]
	start, err = strconv.ParseUint(fields[19], 10, 64)
	return start, state == "X" || state == "Z" && (threads == "0" || threads == "1"), err
}

// Alive tells whether the very process still runs.
func (id Identity) Alive() bool {
	if id.Pid <= 0 {
		return false
	}
	now, err := Identify(id.Pid)
	return err == nil && now == id
}

// FirstInNamespace tells whether it is the first process of a process namespace,
// as a container's main process is.
func (id Identity) FirstInNamespace() bool {
	b, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(id.Pid), "status"))
	if err != nil {
		return false
	}
	for line := range strings.Lines(string(b)) {
		if pids, ok := strings.CutPrefix(line, "NSpid:"); ok {
			fields := strings.Fields(pids)
			return len(fields) > 1 && fields[len(fields)-1] == "1"
		}
	}
	return false
}

// Program is the path of its program, as it sees it; "" when it cannot be read.
func (id Identity) Program() string {
	path, err := os.Readlink(filepath.Join("/proc", strconv.Itoa(id.Pid), "exe"))
	if err != nil {
		return ""
	}
	return path
}

// Wait returns when the process has ended or the context is done.
func (id Identity) Wait(ctx context.Context) error {
	fd, err := id.open()
	if err != nil {
		return nil //nolint:nilerr // what cannot be opened has ended
	}
	defer unix.Close(fd) //nolint:errcheck // nothing was written
	for ctx.Err() == nil {
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 200)
		if err != nil && !errors.Is(err, unix.EINTR) {
			return fmt.Errorf("waiting for process %d: %w", id.Pid, err)
		}
		if n > 0 {
			return nil
		}
	}
	return fmt.Errorf("waiting for process %d: %w", id.Pid, ctx.Err())
}

// open returns a pidfd of the very process: the identity is checked after the
// descriptor exists, so that the pid cannot change hands in between.
func (id Identity) open() (int, error) {
	fd, err := unix.PidfdOpen(id.Pid, 0)
	if err != nil {
		return -1, fmt.Errorf("opening process %d: %w", id.Pid, err)
	}
	if !id.Alive() {
		_ = unix.Close(fd)
		return -1, fmt.Errorf("process %d is another one: %w", id.Pid, os.ErrProcessDone)
	}
	return fd, nil
}

// Signal sends a signal to the very process; nothing when it has ended.
func (id Identity) Signal(sig unix.Signal) error {
	fd, err := id.open()
	if err != nil {
		return nil //nolint:nilerr // what cannot be opened has ended
	}
	defer unix.Close(fd) //nolint:errcheck // nothing was written
	if err := unix.PidfdSendSignal(fd, sig, nil, 0); err != nil && !errors.Is(err, unix.ESRCH) {
		return fmt.Errorf("sending signal %d to process %d: %w", sig, id.Pid, err)
	}
	return nil
}

// Stop ends the very process: SIGTERM, and SIGKILL after the grace period.
func (id Identity) Stop(ctx context.Context, grace time.Duration) error {
	if !id.Alive() {
		return nil
	}
	if err := id.Signal(unix.SIGTERM); err != nil {
		return err
	}
	waiting, cancel := context.WithTimeout(ctx, grace)
	defer cancel()
	if id.Wait(waiting) == nil {
		return nil
	}
	if err := id.Signal(unix.SIGKILL); err != nil {
		return err
	}
	killed, cancelKill := context.WithTimeout(ctx, time.Minute)
	defer cancelKill()
	if err := id.Wait(killed); err != nil {
		return fmt.Errorf("process %d does not end on SIGKILL: %w", id.Pid, err)
	}
	return nil
}

// All lists the processes whose command line fulfils the condition.
func All(match func(cmdline []string) bool) []Identity {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil
	}
	var found []Identity
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		b, err := os.ReadFile(filepath.Join("/proc", e.Name(), "cmdline"))
		if err != nil || len(b) == 0 {
			continue
		}
		if !match(strings.Split(strings.TrimRight(string(b), "\x00"), "\x00")) {
			continue
		}
		if id, err := Identify(pid); err == nil {
			found = append(found, id)
		}
	}
	return found
}
