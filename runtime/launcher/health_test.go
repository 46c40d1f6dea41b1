package launcher

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/slipway-vm/slipway/runtime/protocol"
)

// partly is a part that answers when it is told to, with whether it answers or nobody waits for it.
func partly() (*pulse, chan bool) {
	answers := make(chan bool)
	return &pulse{ask: func() bool { return <-answers }}, answers
}

func TestAPulseHasOneQuestionOpenAndTellsSinceWhen(t *testing.T) {
	p, answer := partly()
	first := p.beat()
	since := p.silent()
	if since.IsZero() || p.beat() != first {
		t.Fatalf("a second question while one is open; since %s", since)
	}
	answer <- false
	<-first
	if !p.silent().Equal(since) {
		t.Errorf("a question that libvirt gave up is an answer: %s, %s", since, p.silent())
	}
	second := p.beat()
	if second == first || !p.silent().Equal(since) {
		t.Errorf("the next question is not open, or the silence begins anew: %s, %s", since, p.silent())
	}
	answer <- true
	<-second
	if !p.silent().IsZero() {
		t.Error("it has answered and is silent")
	}
}

func TestHealthNamesThePartThroughWhichTheOthersAreHeard(t *testing.T) {
	well := func() bool { return true }
	for name, c := range map[string]struct {
		phase                  protocol.Phase
		libvirt, qemu, machine bool // who is stuck
		want                   protocol.Part
	}{
		"all is well":                      {phase: protocol.PhaseRunning},
		"QEMU":                             {phase: protocol.PhaseRunning, qemu: true, want: protocol.PartQEMU},
		"QEMU of a paused guest":           {phase: protocol.PhasePaused, qemu: true, want: protocol.PartQEMU},
		"libvirt, and so all":              {phase: protocol.PhaseRunning, libvirt: true, qemu: true, machine: true, want: protocol.PartLibvirt},
		"the launcher's goroutine":         {phase: protocol.PhaseRunning, machine: true, want: protocol.PartLauncher},
		"a start takes its time":           {phase: protocol.PhaseStarting, qemu: true, machine: true},
		"libvirt stands still for a start": {phase: protocol.PhaseStarting, libvirt: true, want: protocol.PartLibvirt},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				part := func(stuck bool) pulse {
					if !stuck {
						return pulse{ask: well}
					}
					return pulse{ask: func() bool { <-t.Context().Done(); return false }}
				}
				h := &health{libvirt: part(c.libvirt), qemu: part(c.qemu), machine: part(c.machine)}
				before := time.Now()
				got := h.look(t.Context(), c.phase)
				if took := time.Since(before); took > healthPatience {
					t.Errorf("it took %s", took)
				}
				switch {
				case c.want == "" && got.Silent != nil:
					t.Errorf("%s is said to be silent", got.Silent.Part)
				case c.want != "" && (got.Silent == nil || got.Silent.Part != c.want):
					t.Errorf("got %+v, want %s", got.Silent, c.want)
				}
			})
		})
	}
}
