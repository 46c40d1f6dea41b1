package launcher

import (
	"context"
	"time"

	"github.com/slipway-vm/slipway/runtime/guestagent"
)

// The agent tells nothing by itself, so it is asked when it connects and when the
// guest got an address, and a little later again, for the guest needs time to settle.
var agentPauses = []time.Duration{0, 3 * time.Second, 20 * time.Second}

const agentTimeout = 10 * time.Second

// agentWatch says when the agent is asked next.
type agentWatch struct {
	timer *time.Timer
	next  int // index into agentPauses
	busy  bool
}

func (a *agentWatch) stop() { a.timer.Stop() }

// askAgainFromStart begins a new series of questions.
func (m *machine) askAgainFromStart() {
	if m.state.AgentConnected {
		m.agent.next = 0
		m.agent.timer.Reset(agentPauses[0])
	}
}

func (m *machine) agentChanged(connected bool) {
	m.state.AgentConnected = connected
	if !connected {
		m.agent.timer.Stop()
		m.state.AgentVersion, m.state.Interfaces = "", nil
	}
	m.log.Info("The guest agent's channel changed", "connected", connected)
	m.link.Publish(m.state)
	m.askAgainFromStart()
}

// askAgent asks in the background and takes the answer in as a task.
func (m *machine) askAgent(ctx context.Context) {
	if m.agent.busy || !m.state.AgentConnected {
		return
	}
	m.agent.busy = true
	if m.agent.next++; m.agent.next < len(agentPauses) {
		m.agent.timer.Reset(agentPauses[m.agent.next])
	}
	go func() {
		asking, cancel := context.WithTimeout(ctx, agentTimeout)
		defer cancel()
		report, err := guestagent.Ask(asking, m.hv)
		_ = m.do(ctx, func(context.Context) { m.learn(report, err) }) // fails only at the end
	}()
}

func (m *machine) learn(report guestagent.Report, err error) {
	m.agent.busy = false
	if err != nil {
		m.log.Warn("The guest agent did not tell everything", "err", err)
	}
	if report.Version == "" || !m.state.AgentConnected {
		return
	}
	before := m.state
	m.state.AgentVersion, m.state.GuestOS, m.state.Interfaces = report.Version, report.OS, report.Interfaces
	if !sameGuest(before, m.state) {
		m.link.Publish(m.state)
	}
	m.trim()
}
