//go:build integration

package launcher_test

import (
	"fmt"
	"os"
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
)

// TestALauncherNeedsNoMoreThanItsGoals measures the first virtual machine of a node and one more,
// which shares the first one's programs.
func TestALauncherNeedsNoMoreThanItsGoals(t *testing.T) {
	machine := overhead.Machine{Guest: 128 << 20, VCPUs: 1, Graphics: true}
	first := without(t)
	first.fits(machine)
	alone := first.beside()
	t.Logf("beside QEMU the first needs %s", mebibytes(alone))
	if alone > overhead.First {
		t.Errorf("virt-launcher and libvirt's daemon have %s, over the goal of %s", mebibytes(alone), mebibytes(overhead.First))
	}
	second := without(t)
	second.fits(machine)
	more := first.beside() + second.beside() - alone
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
	p.until("running", time.Minute, phase(protocol.PhaseRunning))
	return p
}

// beside is what the pod has beside QEMU, in bytes.
func (p *pod) beside() int64 {
	p.t.Helper()
	return share(p.t, p.pid(programLauncher), 0) + share(p.t, p.pid(programLibvirt), 0)
}

// fits compares what the pod's processes have with the parts of the overhead that its memory
// request counts with.
func (p *pod) fits(machine overhead.Machine) {
	p.t.Helper()
	p.t.Logf("%s has %s, %s %s", programLauncher, mebibytes(share(p.t, p.pid(programLauncher), 0)), programLibvirt, mebibytes(share(p.t, p.pid(programLibvirt), 0)))
	for _, part := range []struct {
		name       string
		has, bound int64
	}{
		{"virt-launcher and libvirt's daemon", p.beside(), overhead.Launcher},
		{"QEMU beyond its guest's memory", share(p.t, p.pid(programQEMU), machine.Guest), machine.QEMUBytes()},
	} {
		p.t.Logf("%s: %s of %s", part.name, mebibytes(part.has), mebibytes(part.bound))
		if part.has > part.bound {
			p.t.Errorf("%s: %s, over the %s that the pod's memory request counts with: see internal/overhead", part.name, mebibytes(part.has), mebibytes(part.bound))
		}
	}
}

// share is a process's proportional share of memory (PSS) in bytes. The guest's memory, which is
// the mapping of that size, is left out; 0 for none.
func share(t *testing.T, pid int, guest int64) int64 {
	t.Helper()
	smaps, err := os.ReadFile(fmt.Sprintf("/proc/%d/smaps", pid))
	if err != nil {
		t.Fatal(err)
	}
	var sum, size int64
	found := guest == 0
	for line := range strings.Lines(string(smaps)) {
		fields := strings.Fields(line)
		if len(fields) != 3 || fields[2] != "kB" {
			continue
		}
		value := int64(atoi(t, fields[1])) << 10
		switch fields[0] {
		case "Size:":
			size = value
		case "Pss:":
			if guest > 0 && size == guest {
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
