package launcher

import (
	"context"
	"time"

	"golang.org/x/sys/unix"

	"github.com/slipway-vm/slipway/runtime/launcher/hypervisor"
	"github.com/slipway-vm/slipway/runtime/protocol"
)

// libvirtPatience is how long libvirt, which may be starting again on a busy machine, may take to
// tell of QEMU's end.
const libvirtPatience = 30 * time.Second

// silentPatience is how long libvirt may take to answer anything at all, before it is not waited for.
const silentPatience = 5 * time.Second

// watchQEMU ends the machine when QEMU has ended and libvirt does not tell of it: a libvirt that
// stands still must not make a guest that is gone look as if it ran.
func (m *machine) watchQEMU(ctx context.Context, pid int) {
	status, ended := m.endings.await(ctx, pid)
	if !ended {
		return
	}
	began := time.Now()
	if m.health.libvirt.answers(ctx, silentPatience) { // or is away, and comes back
		timer := time.NewTimer(libvirtPatience)
		defer timer.Stop()
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		}
	}
	_ = m.do(ctx, func(ctx context.Context) { m.unheard(ctx, status, time.Since(began)) }) // fails only at the end
}

// unheard enters the phase that follows from QEMU's end alone.
func (m *machine) unheard(ctx context.Context, status unix.WaitStatus, after time.Duration) {
	if m.over() {
		return
	}
	m.log.Warn("QEMU ended and libvirt does not tell of it", "after", after.String())
	switch {
	case m.stopping.begun:
		m.enter(protocol.PhaseShutdown, hypervisor.ReasonDestroyed, m.stopping.why)
	case status.Exited() && status.ExitStatus() == 0:
		m.enter(protocol.PhaseShutdown, hypervisor.ReasonGuestShutdown, "the guest shut down")
	default:
		m.enter(protocol.PhaseCrashed, hypervisor.ReasonQEMUEnded, m.crashMessage(ctx, hypervisor.Status{Reason: hypervisor.ReasonQEMUEnded}))
	}
}
