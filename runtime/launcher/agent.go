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
	timer  *time.Timer
	next   int // index into agentPauses
	busy   bool
	missed bool // a question fell due while another one was open
}

func (a *agentWatch) stop() { a.timer.Stop() }

// begin opens a question and plans the next one. It returns false while one is open;
// the answer to that may be older than what calls for a new one, so end plans it.
func (a *agentWatch) begin() bool {
	if a.busy {
		a.missed = true
		return false
	}
	a.busy = true
	if a.next++; a.next < len(agentPauses) {
		a.timer.Reset(agentPauses[a.next])
	}
	return true
}

// end closes the question.
func (a *agentWatch) end() {
	a.busy = false
	if a.missed {
		a.missed = false
		a.timer.Reset(0)
	}
}

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
		m.surveying.load.Store(false)
		m.agent.timer.Stop()
		m.state.AgentVersion, m.state.Interfaces = "", nil
	}
	m.log.Info("The guest agent's channel changed", "connected", connected)
	m.link.Publish(m.state)
	m.askAgainFromStart()
	m.accessDue(0)
}

// askAgent asks in the background and takes the answer in as a task.
func (m *machine) askAgent(ctx context.Context) {
	if !m.state.AgentConnected || !m.agent.begin() {
		return
	}
	go func() {
		asking, cancel := context.WithTimeout(ctx, agentTimeout)
		defer cancel()
		report, err := guestagent.Ask(asking, m.hv)
		_ = m.do(ctx, func(context.Context) { m.learn(report, err) }) // fails only at the end
	}()
}

func (m *machine) learn(report guestagent.Report, err error) {
	m.agent.end()
	if err != nil {
		m.log.Warn("The guest agent did not tell everything", "err", err)
	}
	if report.Version == "" || !m.state.AgentConnected {
		return
	}
	m.surveying.load.Store(report.Load)
	before := m.state
	m.state.AgentVersion, m.state.GuestOS, m.state.Interfaces = report.Version, report.OS, report.Interfaces
	if !sameGuest(before, m.state) {
		m.link.Publish(m.state)
	}
	m.trim()
}
