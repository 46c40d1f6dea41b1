package launcher

import (
	"context"
	"slices"
	"time"

	v1 "kubevirt.io/api/core/v1"

	"github.com/slipway-vm/slipway/runtime/launcher/credentials"
	"github.com/slipway-vm/slipway/runtime/protocol"
)

const (
	// A guest may make its users only some time after its agent answers, so what failed is
	// tried again, at first soon.
	firstAccessPause, lastAccessPause = 2 * time.Second, time.Minute
	// agentOffline is the field's message about a guest without its agent.
	agentOffline = "Guest agent is offline"
)

// accessKeeper gives the guest its keys and passwords: when its agent connects, when a
// Secret changed, and again after a failure.
type accessKeeper struct {
	timer *time.Timer
	list  []v1.AccessCredential
	pause time.Duration // before the next attempt after a failure
	busy  bool
	again bool // an attempt fell due while another one was open
}

// keepAccess begins to keep the guest's access credentials, if it has any by its agent.
func (m *machine) keepAccess(ctx context.Context, vmi *v1.VirtualMachineInstance) error {
	if !slices.ContainsFunc(vmi.Spec.AccessCredentials, credentials.ThroughAgent) {
		return nil
	}
	m.access.list = vmi.Spec.AccessCredentials
	changed := func() {
		_ = m.do(ctx, func(context.Context) { m.accessChanged() }) // fails only at the end
	}
	return credentials.Watch(ctx, m.options.CredentialsDir, m.access.list, changed, m.log)
}

// accessChanged notes that a Secret changed.
func (m *machine) accessChanged() {
	m.log.Info("A Secret of the access credentials changed")
	if !m.state.AgentConnected {
		m.tellAccess(protocol.AccessCredentials{Message: agentOffline})
		return
	}
	m.accessDue(0)
}

// accessDue plans an attempt; without an agent the next one is when that connects.
func (m *machine) accessDue(after time.Duration) {
	switch {
	case len(m.access.list) == 0:
	case !m.state.AgentConnected:
		m.access.timer.Stop()
	default:
		if after == 0 {
			m.access.pause = firstAccessPause
		}
		m.access.timer.Reset(after)
	}
}

// giveAccess sets keys and passwords in the background and takes the end in as a task.
func (m *machine) giveAccess(ctx context.Context) {
	if !m.state.AgentConnected {
		return
	}
	if m.access.busy {
		m.access.again = true
		return
	}
	m.access.busy = true
	list := m.access.list
	go func() {
		asking, cancel := context.WithTimeout(ctx, agentTimeout)
		defer cancel()
		wanted, err := credentials.Read(m.options.CredentialsDir, list)
		if err == nil {
			err = credentials.Give(asking, m.hv, wanted)
		}
		_ = m.do(ctx, func(context.Context) { m.accessGiven(err) }) // fails only at the end
	}()
}

func (m *machine) accessGiven(err error) {
	m.access.busy = false
	again := m.access.again
	m.access.again = false
	switch {
	case err != nil:
		m.log.Warn("Failed to give the guest its access credentials", "err", err, "again", m.access.pause.String())
		m.tellAccess(protocol.AccessCredentials{Message: err.Error()})
	default:
		m.tellAccess(protocol.AccessCredentials{Synchronized: true})
	}
	switch {
	case again:
		m.accessDue(0)
	case err != nil:
		m.accessDue(m.access.pause)
		m.access.pause = min(2*m.access.pause, lastAccessPause)
	}
}

// tellAccess tells the handler, if it is news.
func (m *machine) tellAccess(access protocol.AccessCredentials) {
	if m.state.AccessCredentials != nil && *m.state.AccessCredentials == access {
		return
	}
	m.state.AccessCredentials = &access
	m.link.Publish(m.state)
}
