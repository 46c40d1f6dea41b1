//go:build integration

package process

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
	"k8s.io/apimachinery/pkg/types"

	"github.com/slipway-vm/slipway/tests/fixture/need"
)

func TestOnlyThePodsProcessesMayRunInRealTime(t *testing.T) {
	need.Root(t, "make a cgroup")
	const uid = types.UID("0a1b2c3d-0000-4000-8000-00000000f1f0")
	group := filepath.Join("/sys/fs/cgroup", "pod"+string(uid))
	if _, err := os.Stat("/sys/fs/cgroup/cgroup.procs"); err != nil { // version 1
		group = filepath.Join("/sys/fs/cgroup/pids", "pod"+string(uid))
	}
	if err := os.Mkdir(group, 0o755); err != nil {
		t.Fatal(err)
	}
	inside, outside := exec.Command("sleep", "3600"), exec.Command("sleep", "3600")
	for _, command := range []*exec.Cmd{inside, outside} {
		if err := command.Start(); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() {
		for _, command := range []*exec.Cmd{inside, outside} {
			_ = command.Process.Kill()
			_ = command.Wait()
		}
		if err := os.Remove(group); err != nil {
			t.Error(err)
		}
	})
	if err := os.WriteFile(filepath.Join(group, "cgroup.procs"), []byte(itoa(inside.Process.Pid)), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := AllowRealtime(uid); errors.Is(err, unix.EPERM) {
		// As in a container without CAP_SYS_RESOURCE; a privileged one has it.
		t.Logf("This machine's root may not raise limits, which is told: %v", err)
		return
	} else if err != nil {
		t.Fatal(err)
	}
	for command, want := range map[*exec.Cmd]uint64{inside: realtimePriority, outside: limitOf(t, os.Getpid())} {
		if got := limitOf(t, command.Process.Pid); got != want {
			t.Errorf("a process may go up to priority %d, want %d", got, want)
		}
	}
}

func limitOf(t *testing.T, pid int) uint64 {
	t.Helper()
	var limit unix.Rlimit
	if err := unix.Prlimit(pid, unix.RLIMIT_RTPRIO, nil, &limit); err != nil {
		t.Fatal(err)
	}
	return limit.Max
}
