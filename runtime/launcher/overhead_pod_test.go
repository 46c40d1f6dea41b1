//go:build integration

package launcher_test

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/slipway-vm/slipway/internal/overhead"
	"github.com/slipway-vm/slipway/runtime/protocol"
)

// The programs of a pod.
const (
	programLauncher = "virt-launcher"
	programLibvirt  = "libvirtd"
	programQEMU     = "qemu-system-x86_64"
	programTPM      = "swtpm"
	programProbe    = "virt-probe"
	programShare    = "virtiofsd"
)

// commLength is how much of a program's name the kernel keeps.
const commLength = 15

// TestALauncherNeedsNoMoreThanItsGoals measures the first virtual machine of a node and one more,
// which shares the first one's programs.
func TestALauncherNeedsNoMoreThanItsGoals(t *testing.T) {
	machine := overhead.Machine{Guest: 128 << 20, VCPUs: 1, Graphics: true}
	first := without(t)
	first.fits(machine)
	alone := first.beside(machine)
	t.Logf("beside QEMU the first needs %s", mebibytes(alone))
	if alone > overhead.First {
		t.Errorf("virt-launcher and libvirt's daemon have %s, over the goal of %s", mebibytes(alone), mebibytes(overhead.First))
	}
	second := without(t)
	second.fits(machine)
	more := first.beside(machine) + second.beside(machine) - alone
	t.Logf("beside QEMU the second needs %s more", mebibytes(more))
	if more > overhead.Further {
		t.Errorf("a second virt-launcher and libvirt's daemon have %s, over the goal of %s", mebibytes(more), mebibytes(overhead.Further))
	}
}

// without starts a machine that has no guest.
func without(t *testing.T) *pod {
	t.Helper()
	p := start(t)
	p.connected()
	message := protocol.Sync{VMI: unbootable(), Facts: protocol.Facts{AllowEmulation: true, Interfaces: links()}}
	var state protocol.State
	if err := p.conn.Call(t.Context(), protocol.TypeSync, message, &state); err != nil || state.Phase != protocol.PhaseRunning {
		t.Fatalf("%+v, %v", state, err)
	}
	p.until("running", phase(protocol.PhaseRunning))
	return p
}

// processes are the numbers of all processes of the pod, by program: of all that are in the launcher's
// namespace of processes, whoever started them.
func (p *pod) processes() map[string][]int {
	p.t.Helper()
	space, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/pid", p.pid(programLauncher)))
	if err != nil {
		p.t.Fatal(err)
	}
	dirs, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		p.t.Fatal(err)
	}
	found := map[string][]int{}
	for _, dir := range dirs {
		if other, err := os.Readlink(filepath.Join(dir, "ns/pid")); err != nil || other != space {
			continue // another's, or gone
		}
		name, err := os.ReadFile(filepath.Join(dir, "comm"))
		if err == nil {
			program := strings.TrimSpace(string(name))
			found[program] = append(found[program], atoi(p.t, filepath.Base(dir)))
		}
	}
	return found
}

// settled waits until the pod has just the processes that the machine needs, one of each program. A
// process that nobody counts with is an error.
func (p *pod) settled(machine overhead.Machine) map[string][]int {
	p.t.Helper()
	wanted := map[string]int{programLauncher: 1, programLibvirt: 1, programQEMU[:commLength]: 1}
	if machine.TPM {
		wanted[programTPM] = 1
	}
	if machine.AgentProbes > 0 {
		wanted[programProbe] = int(machine.AgentProbes)
	}
	if machine.Filesystems > 0 {
		wanted[programShare] = int(machine.Filesystems)
	}
	deadline, look := time.After(patience), time.NewTicker(100*time.Millisecond)
	defer look.Stop()
	for {
		found, counts := p.processes(), map[string]int{}
		for program, pids := range found {
			counts[program] = len(pids)
		}
		if maps.Equal(counts, wanted) {
			return found
		}
		select {
		case <-look.C:
		case <-deadline:
			p.t.Fatalf("the pod has the processes %v, want %v and no other", counts, wanted)
		}
	}
}

// beside is what the pod has beside QEMU, in bytes.
func (p *pod) beside(machine overhead.Machine) int64 {
	p.t.Helper()
	sum := int64(0)
	for program, pids := range p.settled(machine) {
		if program == programQEMU[:commLength] {
			continue
		}
		for _, pid := range pids {
			guest := int64(0)
			if program == programShare { // which has the guest's memory, too
				guest = machine.Guest
			}
			has := share(p.t, pid, guest)
			p.t.Logf("%s has %s", program, mebibytes(has))
			sum += has
		}
	}
	return sum
}

// fits compares what the pod's processes have with the parts of the overhead that its memory
// request counts with.
func (p *pod) fits(machine overhead.Machine) {
	p.t.Helper()
	for _, part := range []struct {
		name       string
		has, bound int64
	}{
		{"what is not QEMU", p.beside(machine), machine.BesideQEMUBytes()},
		{"QEMU beyond its guest's memory", share(p.t, p.pid(programQEMU), machine.Guest), machine.QEMUBytes()},
	} {
		p.t.Logf("%s: %s of %s", part.name, mebibytes(part.has), mebibytes(part.bound))
		if part.has > part.bound {
			p.t.Errorf("%s: %s, over the %s that the pod's memory request counts with: see internal/overhead", part.name, mebibytes(part.has), mebibytes(part.bound))
		}
	}
}

// guestFile is what the file is called that has the guest's memory where QEMU shares it.
const guestFile = "/memfd:memory-backend-memfd"

// share is a process's proportional share of memory (PSS) in bytes. The guest's memory, which is
// the mapping of that size or those of its file, is left out; 0 for none.
func share(t *testing.T, pid int, guest int64) int64 {
	t.Helper()
	smaps, err := os.ReadFile(fmt.Sprintf("/proc/%d/smaps", pid))
	if err != nil {
		t.Fatal(err)
	}
	var sum, size int64
	found, ofFile := guest == 0, false
	for line := range strings.Lines(string(smaps)) {
		if first, _, _ := strings.Cut(line, " "); strings.Contains(first, "-") { // a mapping begins
			ofFile = strings.Contains(line, guestFile)
		}
		fields := strings.Fields(line)
		if len(fields) != 3 || fields[2] != "kB" {
			continue
		}
		value := int64(atoi(t, fields[1])) << 10
		switch fields[0] {
		case "Size:":
			size = value
		case "Pss:":
			if guest > 0 && (size == guest || ofFile) {
				found = true
				continue
			}
			sum += value
		}
	}
	if !found {
		t.Fatalf("process %d has no mapping of the guest's %s", pid, mebibytes(guest))
	}
	return sum
}

func mebibytes(bytes int64) string { return fmt.Sprintf("%.1f MiB", float64(bytes)/(1<<20)) }
