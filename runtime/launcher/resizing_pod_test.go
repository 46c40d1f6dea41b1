//go:build integration

package launcher_test

import (
	"fmt"
	"strconv"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/resource"
	v1 "kubevirt.io/api/core/v1"

	"github.com/slipway-vm/slipway/runtime/protocol"
)

func TestAGuestGrowsWhileItRuns(t *testing.T) {
	vmi := guest()
	vmi.Spec.Domain.CPU = &v1.CPU{Sockets: 1, Cores: 1, Threads: 1, MaxSockets: 3}
	less, most := resource.MustParse("192Mi"), resource.MustParse("320Mi")
	vmi.Spec.Domain.Memory = &v1.Memory{Guest: &less, MaxGuest: &most}
	p := start(t)
	p.connected()
	state, err := p.sync(vmi)
	if err != nil || state.Phase != protocol.PhaseRunning || state.VCPUs != 1 {
		t.Fatalf("state %+v, %v", state, err)
	}
	p.until("the agent's report", agentUp)
	run := p.exec(boot).Stdout

	p.forget()
	p.ask(protocol.TypeResize, protocol.Resize{VCPUs: 2})
	p.until("two processors", func(s protocol.State) bool { return s.VCPUs == 2 })
	before := memTotal(t, p)
	p.forget()
	const grown = 256 << 20
	p.ask(protocol.TypeResize, protocol.Resize{Memory: grown})
	p.until("more memory", func(s protocol.State) bool {
		return s.Memory != nil && *s.Memory == protocol.Memory{AtBoot: 192 << 20, Requested: grown, Current: grown}
	})
	p.retry("the guest uses its memory", func() error { // a moment after it took the last of it
		if got := memTotal(t, p) - before; got < 60<<10 {
			return fmt.Errorf("the guest has %d KiB more, want 64 MiB", got)
		}
		return nil
	})

	if err := p.conn.Call(t.Context(), protocol.TypeResize, protocol.Resize{Memory: 1 << 30}, nil); err == nil {
		t.Error("its memory grows beyond its maximum")
	}
	if err := p.conn.Call(t.Context(), protocol.TypeResize, protocol.Resize{VCPUs: 9}, nil); err == nil {
		t.Error("it grows beyond its maximum")
	}
	if got := p.exec(boot).Stdout; got != run {
		t.Errorf("the guest was started anew: %s, then %s", run, got)
	}

	// Under emulation, kernels as new as this one find a new processor only when they boot.
	p.ask(protocol.TypeReset, nil)
	p.restarted(run)
	p.inGuest(switchOn+"; grep -c ^processor /proc/cpuinfo", "2\n")
}

// memTotal is the guest's memory in KiB as its kernel sees it.
func memTotal(t *testing.T, p *pod) int {
	t.Helper()
	words := strings.Fields(p.exec("grep ^MemTotal /proc/meminfo").Stdout)
	if len(words) != 3 {
		t.Fatalf("the guest's memory: %q", words)
	}
	kibibytes, err := strconv.Atoi(words[1])
	if err != nil {
		t.Fatal(err)
	}
	return kibibytes
}
