package launcher

import (
	"context"
	"sync"
	"time"

	"github.com/slipway-vm/slipway/runtime/launcher/hypervisor"
	"github.com/slipway-vm/slipway/runtime/protocol"
)

// healthPatience is how long a question for the VM's health waits for its parts, which take milliseconds.
const healthPatience = time.Second

// pulse asks a part of the VM again and again whether it answers, with one question at a time.
type pulse struct {
	// ask returns when the part has answered, which may be never, or when nobody waits for the
	// answer any more: false.
	ask func() bool

	mu    sync.Mutex
	asked chan struct{} // closed at the end of the open question; nil while none is open
	since time.Time     // of the first question that has no answer; zero when all have one
}

// beat asks, unless a question is open, and returns what is closed when that has come to its end.
func (p *pulse) beat() <-chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.asked != nil {
		return p.asked
	}
	if p.since.IsZero() {
		p.since = time.Now()
	}
	asked := make(chan struct{})
	p.asked = asked
	go func() {
		answered := p.ask()
		p.mu.Lock()
		defer p.mu.Unlock()
		if p.asked = nil; answered {
			p.since = time.Time{}
		}
		close(asked)
	}()
	return asked
}

// silent returns since when the part has not answered; zero when it has.
func (p *pulse) silent() time.Time {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.since
}

// answers says whether the part answers within patience.
func (p *pulse) answers(ctx context.Context, patience time.Duration) bool {
	ctx, stop := context.WithTimeout(ctx, patience)
	defer stop()
	select {
	case <-ctx.Done():
		return false
	case <-p.beat():
		return p.silent().IsZero()
	}
}

// health asks what the VM consists of. It goes around the machine's goroutine, which may be waiting
// for the part that is silent.
type health struct{ libvirt, qemu, machine pulse }

func newHealth(m *machine, hv *hypervisor.Hypervisor) *health {
	return &health{
		libvirt: pulse{ask: hv.DaemonAnswers},
		qemu:    pulse{ask: hv.QEMUAnswers},
		machine: pulse{ask: func() bool {
			done := make(chan struct{})
			m.tasks <- func(context.Context) { close(done) }
			<-done
			return true
		}},
	}
}

// part is a part with its pulse.
type part struct {
	name  protocol.Part
	pulse *pulse
}

// look asks what is to answer in phase, and tells what does not: of several parts the one that the
// others are heard through. QEMU's start takes its time, and is no silence.
func (h *health) look(ctx context.Context, phase protocol.Phase) protocol.Health {
	ctx, stop := context.WithTimeout(ctx, healthPatience)
	defer stop()
	parts := []part{{protocol.PartLibvirt, &h.libvirt}}
	if phase == protocol.PhaseRunning || phase == protocol.PhasePaused {
		parts = append(parts, part{protocol.PartQEMU, &h.qemu}, part{protocol.PartLauncher, &h.machine})
	}
	asked := make([]<-chan struct{}, len(parts)) // all at once
	for i, one := range parts {
		asked[i] = one.pulse.beat()
	}
	for i, one := range parts {
		select {
		case <-asked[i]:
		case <-ctx.Done():
		}
		if since := one.pulse.silent(); !since.IsZero() {
			return protocol.Health{Silent: &protocol.Silence{Part: one.name, Since: since.UTC()}}
		}
	}
	return protocol.Health{}
}
