//go:build integration

package launcher_test

import (
	"debug/elf"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/slipway-vm/slipway/runtime/protocol"
)

// TestTheGuestsMemoryIsDumped writes the memory of a guest that knows a secret to a claim, which it
// survives; one that cannot be written leaves nothing, and libvirtd may end while one goes on.
func TestTheGuestsMemoryIsDumped(t *testing.T) {
	p := booted(t)
	dir := claimDir(t)
	p.exec("echo the-$((40+2))-secret > /tmp/secret; cat /tmp/secret")
	p.forget()

	const first = "tiny-dumps-20260102-030405.memory.dump"
	state := p.dump(dir, first)
	if i := slices.IndexFunc(state.Dumps, func(d protocol.Dump) bool { return d.File == first }); i < 0 || state.Phase != protocol.PhaseRunning {
		t.Errorf("once it has begun: %+v", state)
	}
	if err := p.conn.Call(t.Context(), protocol.TypePause, nil, nil); err != nil && !strings.Contains(err.Error(), "being dumped") {
		t.Errorf("a pause meanwhile: %v", err)
	}
	dump := p.dumpEnded(first)
	if dump.Error != "" || !dump.Ended.After(dump.Began) {
		t.Fatalf("%+v", dump)
	}
	t.Logf("the dump took %s", dump.Ended.Sub(dump.Began))
	holds(t, filepath.Join(dir, first), "the-42-secret")
	p.mu.Lock()
	for _, state := range p.states {
		if state.Phase != protocol.PhaseRunning {
			t.Errorf("the guest was said to be %s, %s", state.Phase, state.Reason)
		}
	}
	p.mu.Unlock()
	p.goesOn("cat /tmp/secret", "the-42-secret")
	p.dump(dir, first) // which changes nothing

	const full = "tiny-dumps-20260102-040404.memory.dump"
	small := tooSmall(t)
	p.dump(small, full)
	if dump := p.dumpEnded(full); !strings.Contains(dump.Error, "No space left") {
		t.Errorf("a claim that is too small: %+v", dump)
	}
	if entries, err := os.ReadDir(small); err != nil || len(entries) != 0 {
		t.Errorf("the claim that is too small holds %v, %v", entries, err)
	}
	p.goesOn("cat /tmp/secret", "the-42-secret")

	const last = "tiny-dumps-20260102-050505.memory.dump"
	p.dump(dir, last)
	if err := syscall.Kill(p.pid("libvirtd"), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if dump := p.dumpEnded(last); dump.Error != "" {
		t.Errorf("without libvirtd: %+v", dump)
	}
	holds(t, filepath.Join(dir, last), "the-42-secret")
	p.goesOn("cat /tmp/secret", "the-42-secret")
}

// goesOn waits until the guest runs a command again, a moment after the dump has ended, with the
// words in what that says.
func (p *pod) goesOn(command, want string) {
	p.t.Helper()
	p.retry("the guest goes on", func() error {
		var result protocol.GuestExecResult
		run := protocol.GuestExec{Command: "/bin/sh", Args: []string{"-c", command}, TimeoutSeconds: 20}
		if err := p.conn.Call(p.t.Context(), protocol.TypeGuestExec, run, &result); err != nil {
			return err
		}
		if !strings.Contains(result.Stdout, want) {
			return fmt.Errorf("%s said %+v", command, result)
		}
		return nil
	})
}

// dump asks for a dump to the claim in dir.
func (p *pod) dump(dir, file string) protocol.State {
	p.t.Helper()
	claim, err := os.OpenFile(dir, os.O_RDONLY|syscall.O_DIRECTORY, 0)
	if err != nil {
		p.t.Fatal(err)
	}
	defer claim.Close()
	var state protocol.State
	if err := p.conn.Call(p.t.Context(), protocol.TypeMemoryDump, protocol.MemoryDump{Volume: "dumps", File: file}, &state, claim); err != nil {
		p.t.Fatal(err)
	}
	return state
}

// dumpEnded waits for the end of a dump.
func (p *pod) dumpEnded(file string) protocol.Dump {
	p.t.Helper()
	var found protocol.Dump
	p.until("the end of the dump "+file, func(state protocol.State) bool {
		for _, dump := range state.Dumps {
			if dump.File == file && dump.Ended != nil {
				found = dump
				return true
			}
		}
		return false
	})
	return found
}

// holds reads a core file with all of the guest's memory, which has the words in it.
func holds(t *testing.T, path, words string) {
	t.Helper()
	core, err := elf.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer core.Close()
	var size uint64
	for _, part := range core.Progs {
		if part.Type == elf.PT_LOAD {
			size += part.Filesz
		}
	}
	if core.Type != elf.ET_CORE || core.Machine != elf.EM_X86_64 || size < 128<<20 {
		t.Errorf("%s is %s of %s with %d bytes of memory", path, core.Type, core.Machine, size)
	}
	content, err := os.ReadFile(path)
	if err != nil || !strings.Contains(string(content), words) {
		t.Errorf("%s has not %q in its %d bytes, %v", path, words, len(content), err)
	}
}

// tooSmall is a claim for less than the guest's memory.
func tooSmall(t *testing.T) string {
	t.Helper()
	dir := claimDir(t)
	if err := syscall.Mount("none", dir, "tmpfs", 0, "size=16m,uid=107,gid=107"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(dir, syscall.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	return dir
}
