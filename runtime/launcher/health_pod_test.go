//go:build integration

package launcher_test

import (
	"context"
	"syscall"
	"testing"
	"time"

	"github.com/slipway-vm/slipway/runtime/protocol"
)

// health asks the launcher which part is silent; false when it does not answer itself.
func (p *pod) health() (protocol.Health, bool) {
	ctx, stop := context.WithTimeout(p.t.Context(), 5*time.Second) // it answers within one, or is asked again
	defer stop()
	var health protocol.Health
	err := p.conn.Call(ctx, protocol.TypeHealth, nil, &health)
	return health, err == nil
}

// untilHealth asks until the answer is as wanted.
func (p *pod) untilHealth(what string, want func(health protocol.Health, answered bool) bool) protocol.Health {
	p.t.Helper()
	for deadline := time.Now().Add(patience); ; {
		health, answered := p.health()
		if want(health, answered) {
			return health
		}
		if time.Now().After(deadline) {
			p.t.Fatalf("not %s within %s; at the end %+v, answered: %v", what, patience, health.Silent, answered)
		}
		time.Sleep(100 * time.Millisecond) // as a handler does, in seconds
	}
}

func well(health protocol.Health, answered bool) bool { return answered && health.Silent == nil }

// runs starts a guest that no operating system keeps busy.
func runs(t *testing.T) *pod {
	t.Helper()
	p := start(t)
	p.connected()
	if state, err := p.sync(unbootable()); err != nil || state.Phase != protocol.PhaseRunning {
		t.Fatalf("%+v, %v", state, err)
	}
	p.untilHealth("well after the start", well)
	return p
}

func TestAPartThatStandsStillIsNamedRecoversAndIsEnded(t *testing.T) {
	for program, part := range map[string]protocol.Part{
		"qemu-system-x86_64": protocol.PartQEMU,
		"libvirtd":           protocol.PartLibvirt,
	} {
		t.Run(program, func(t *testing.T) {
			p := runs(t)
			p.kill(program, syscall.SIGSTOP)
			stopped := time.Now()
			for range 6 { // more than libvirt has workers for; they must not make it look stuck, too
				go func() { _ = p.conn.Call(t.Context(), protocol.TypePause, nil, nil) }()
			}
			// Another part may have no processor for a moment, and answer late.
			silent := func(health protocol.Health, _ bool) bool {
				return health.Silent != nil && health.Silent.Part == part && time.Since(health.Silent.Since) > 3*time.Second
			}
			first := p.untilHealth("named", silent)
			t.Logf("%s is named %s after its stop", first.Silent.Part, time.Since(stopped))
			second := p.untilHealth("still named", silent)
			if !second.Silent.Since.Equal(first.Silent.Since) {
				t.Errorf("got %+v, then %+v", first.Silent, second.Silent)
			}

			p.kill(program, syscall.SIGCONT)
			began := time.Now()
			p.untilHealth("well again", well)
			t.Logf("well again after %s", time.Since(began))

			p.kill(program, syscall.SIGSTOP)
			began = time.Now()
			p.shutDown(t, protocol.Shutdown{GracePeriodSeconds: 1})
			state := p.until("the end", phase(protocol.PhaseShutdown))
			t.Logf("ended in %s: %s", time.Since(began), state.Message)
			if code := p.exit(); code != 0 || state.Reason != "Destroyed" {
				t.Errorf("exit code %d, %+v", code, state)
			}
		})
	}
}

func TestALauncherThatStandsStillRecoversAndIsEnded(t *testing.T) {
	p := runs(t)
	p.kill("virt-launcher", syscall.SIGSTOP)
	if _, answered := p.health(); answered {
		t.Error("a launcher that stands still answers")
	}
	p.kill("virt-launcher", syscall.SIGCONT)
	p.untilHealth("well again", well)

	p.kill("virt-launcher", syscall.SIGSTOP)
	qemu := p.pid("qemu-system-x86_64")
	p.kill("virt-launcher", syscall.SIGKILL) // as the kubelet does at the end of the grace period
	if code := p.exit(); code == 0 {
		t.Error("its end by force is a success")
	}
	if err := syscall.Kill(qemu, 0); err == nil {
		t.Error("QEMU has outlived the launcher")
	}
}
