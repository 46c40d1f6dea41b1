package launcher

import (
	"time"

	"github.com/slipway-vm/slipway/runtime/launcher/hypervisor"
	"github.com/slipway-vm/slipway/runtime/protocol"
)

const (
	// pressAgain is the time between asks to shut down: a guest that is still booting
	// does not notice the first.
	pressAgain = 5 * time.Second
	// destroyPatience is how long libvirt may take to end QEMU.
	destroyPatience = 5 * time.Second
)

// stopping is a shutdown that was asked for.
type stopping struct {
	begun    bool
	grace    time.Duration
	until    time.Time
	why      string // what a Destroyed state says
	press    *time.Timer
	deadline *time.Timer
}

func newStopping() stopping {
	return stopping{press: stoppedTimer(), deadline: stoppedTimer(), why: "the virtual machine was powered off"}
}

func (s *stopping) stop() {
	s.press.Stop()
	s.deadline.Stop()
}

// stoppedTimer is a timer that does not run yet.
func stoppedTimer() *time.Timer {
	timer := time.NewTimer(time.Hour)
	timer.Stop()
	return timer
}

// shutdown asks the guest to shut down and sets when it is ended. Asked again, the
// earlier end counts.
func (m *machine) shutdown(grace time.Duration) {
	until := time.Now().Add(grace)
	if m.stopping.begun && !until.Before(m.stopping.until) {
		return
	}
	first := !m.stopping.begun
	m.stopping.begun, m.stopping.grace, m.stopping.until = true, grace, until
	if m.over() {
		return
	}
	if m.waiting.request != nil {
		m.destroy("the virtual machine was stopped before its disks were free")
		return
	}
	if grace <= 0 {
		m.destroy("the virtual machine was powered off without a grace period")
		return
	}
	m.stopping.deadline.Reset(grace)
	if first {
		m.pressPowerButton()
	}
}

// pressPowerButton asks the guest to shut down, in the background, for its agent may
// take its time.
func (m *machine) pressPowerButton() {
	m.stopping.press.Reset(pressAgain)
	agent, paused := m.state.AgentConnected, m.state.Phase == protocol.PhasePaused
	go func() {
		if paused { // a guest that stands still hears nothing
			if err := m.domain.Resume(); err != nil {
				m.log.Warn("Failed to resume the guest for its shutdown", "err", err)
			}
		}
		if err := m.domain.PowerDown(agent); err != nil {
			m.log.Warn("Failed to ask the guest to shut down", "err", err)
		}
	}()
}

// destroy powers the machine off; libvirt's event ends it. Without libvirt QEMU's own
// end does, once libvirt is back.
func (m *machine) destroy(why string) {
	m.stopping.begun, m.stopping.why = true, why
	m.stopping.stop()
	if m.over() {
		return
	}
	if m.waiting.request != nil { // there is nothing to power off yet
		m.waiting.stop()
		m.enter(protocol.PhaseShutdown, hypervisor.ReasonDestroyed, why)
		return
	}
	m.log.Info("Powering the virtual machine off", "why", why)
	go func() {
		if err := m.domain.Destroy(destroyPatience); err != nil {
			m.log.Error("Failed to power the virtual machine off", "err", err)
		}
	}()
}
