package launcher

import (
	"context"
	"slices"
	"time"

	"github.com/slipway-vm/slipway/runtime/guestagent"
	"github.com/slipway-vm/slipway/runtime/protocol"
)

// The agent tells nothing by itself, so it is asked when it connects and when the
// guest got an address, and a little later again, for the guest needs time to settle.
var agentPauses = []time.Duration{0, 3 * time.Second, 20 * time.Second}

const (
	agentTimeout = 10 * time.Second
	// As long as the agent has not told all that it is asked for, as that of a guest for which a busy node has no processor, it
	// is asked on, at distances that double.
	firstAgentPause, lastAgentPause = 20 * time.Second, 5 * time.Minute
)

// agentWatch says when the agent is asked next.
type agentWatch struct {
	timer  *time.Timer
	next   int // index into agentPauses
	busy   bool
	missed bool // a question fell due while another one was open
	// leased says that the guest took an address from the launcher, which it then has.
	leased bool
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

// end closes the question. One that did not tell all is asked again, also after the last of its series.
func (a *agentWatch) end(whole bool) {
	a.busy = false
	beyond := a.next - len(agentPauses)
	switch {
	case a.missed:
		a.missed = false
		a.timer.Reset(0)
	case !whole && beyond >= 0:
		pause := firstAgentPause
		for ; beyond > 0 && pause < lastAgentPause; beyond-- {
			pause *= 2
		}
		a.timer.Reset(min(pause, lastAgentPause))
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
	m.agent.end(report.Whole && (!m.agent.leased || addressed(report)))
	if err != nil {
		m.log.Warn("The guest agent did not tell everything", "err", err)
	}
	if report.Version == "" || !m.state.AgentConnected {
		return
	}
	m.surveying.load.Store(report.Load)
	before := m.state
	m.state.AgentVersion = report.Version
	if report.Whole || report.OS != nil { // else what it told before is kept
		m.state.GuestOS = report.OS
	}
	if report.Whole || report.Interfaces != nil {
		m.state.Interfaces = report.Interfaces
	}
	if !sameGuest(before, m.state) {
		m.link.Publish(m.state)
	}
	m.trim()
}

// addressed says whether an interface of the guest has an address.
func addressed(report guestagent.Report) bool {
	return slices.ContainsFunc(report.Interfaces, func(one protocol.GuestInterface) bool { return len(one.IPs) > 0 })
}

// reconnectedPauses are those before looks at the agent's channel after libvirtd was started again: it may still be finding out.
var reconnectedPauses = []time.Duration{0, 2 * time.Second, 10 * time.Second, 30 * time.Second}

// missedAgent finds out what became of the agent's channel while libvirtd was away, of which it tells nobody who comes later. That
// the channel is closed may only mean at first that libvirtd does not know yet.
func (m *machine) missedAgent(ctx context.Context) {
	timer := stoppedTimer()
	defer timer.Stop()
	for look, pause := range reconnectedPauses {
		timer.Reset(pause)
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		}
		_ = m.do(ctx, func(context.Context) { m.lookForAgent(look > 0) }) // fails only at the end
	}
}

// lookForAgent takes in what libvirt says of the agent's channel; that it is closed, only when that is sure. What libvirt tells of
// it later comes later.
func (m *machine) lookForAgent(sure bool) {
	connected, err := m.hv.AgentConnected()
	if err != nil {
		m.log.Debug("Failed to look at the guest agent's channel", "err", err)
		return
	}
	if connected != m.state.AgentConnected && (connected || sure) {
		m.agentChanged(connected)
	}
}
