package main

import (
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

// A stage behind the others, and what it starts, gives way to them.
func TestYieldLowersThePriority(t *testing.T) {
	cmd := exec.CommandContext(t.Context(), "sleep", "60")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = cmd.Process.Kill(), cmd.Wait() })
	if err := yield(cmd.Process.Pid); err != nil {
		t.Fatal(err)
	}
	pid := strconv.Itoa(cmd.Process.Pid)
	stat, err := os.ReadFile("/proc/" + pid + "/stat")
	if err != nil {
		t.Fatal(err)
	}
	const nice = 18 // the field, counted from 0; proc_pid_stat(5) counts from 1
	if got := strings.Fields(string(stat))[nice]; got != strconv.Itoa(niceness) {
		t.Errorf("the process has niceness %s, want %d", got, niceness)
	}
	group, err := os.ReadFile("/proc/" + pid + "/autogroup")
	if os.IsNotExist(err) {
		return // this kernel does not share time by session
	}
	if err != nil {
		t.Fatal(err)
	}
	if want := "nice " + strconv.Itoa(niceness); !strings.Contains(string(group), want) {
		t.Errorf("the session has %q, want %q", group, want)
	}
}
