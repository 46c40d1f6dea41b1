//go:build integration

package launcher_test

import (
	"strconv"
	"strings"
	"testing"
	"time"

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
	p.until("the agent's report", 3*time.Minute, agentUp)
	boot := p.exec("cat /proc/sys/kernel/random/boot_id").Stdout

	p.forget()
	p.ask(protocol.TypeResize, protocol.Resize{VCPUs: 2})
	p.until("two processors", time.Minute, func(s protocol.State) bool { return s.VCPUs == 2 })
	before := memTotal(t, p)
	p.forget()
	const grown = 256 << 20
	p.ask(protocol.TypeResize, protocol.Resize{Memory: grown})
	p.until("more memory", 2*time.Minute, func(s protocol.State) bool {
		return s.Memory != nil && *s.Memory == protocol.Memory{AtBoot: 192 << 20, Requested: grown, Current: grown}
	})
	if got := memTotal(t, p) - before; got < 60<<10 {
		t.Errorf("the guest has %d KiB more, want 64 MiB", got)
	}

	if err := p.conn.Call(t.Context(), protocol.TypeResize, protocol.Resize{Memory: 1 << 30}, nil); err == nil {
		t.Error("its memory grows beyond its maximum")
	}
	if err := p.conn.Call(t.Context(), protocol.TypeResize, protocol.Resize{VCPUs: 9}, nil); err == nil {
		t.Error("it grows beyond its maximum")
	}
	if got := p.exec("cat /proc/sys/kernel/random/boot_id").Stdout; got != boot {
		t.Errorf("the guest was started anew: %s, then %s", boot, got)
	}

	// Under emulation, kernels as new as this one find a new processor only when they boot.
	p.forget()
	p.ask(protocol.TypeReset, nil)
	p.until("the agent's end", time.Minute, func(s protocol.State) bool { return !s.AgentConnected })
	p.forget()
	p.until("the agent's report", 3*time.Minute, agentUp)
	if got := p.exec("grep -c ^processor /proc/cpuinfo").Stdout; strings.TrimSpace(got) != "2" {
		t.Errorf("the guest has %s processors after its reset", got)
	}
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
