package launcher

import (
	"cmp"
	"context"
	"time"

	"github.com/slipway-vm/slipway/runtime/guestagent"
	"github.com/slipway-vm/slipway/runtime/protocol"
	"github.com/slipway-vm/slipway/runtime/protocol/wire"
)

const (
	// defaultFreeze is how long file systems stand still at most when nobody says.
	defaultFreeze = 5 * time.Minute
	// thawAgain is the time between tries to let them go on.
	thawAgain = 10 * time.Second
)

// freeze makes the guest's file systems stand still. That they go on again is set before:
// whoever asks may be gone before the agent has answered.
func (m *machine) freeze(ctx context.Context, request wire.Request, state protocol.State) (any, error) {
	var freeze protocol.Freeze
	if err := request.Decode(&freeze); err != nil {
		return nil, err
	}
	if !state.AgentConnected {
		return nil, errNoAgent
	}
	limit := cmp.Or(time.Duration(freeze.UnfreezeTimeoutSeconds)*time.Second, defaultFreeze)
	if err := m.do(ctx, func(context.Context) { m.thaw.Reset(max(limit, 0)) }); err != nil {
		return nil, err
	}
	if err := guestagent.Freeze(ctx, m.hv); err != nil {
		return nil, err
	}
	return nil, m.do(ctx, func(context.Context) { m.setFrozen(true) })
}

func (m *machine) unfreeze(ctx context.Context, _ wire.Request, state protocol.State) (any, error) {
	if !state.AgentConnected {
		return nil, errNoAgent
	}
	if err := guestagent.Thaw(ctx, m.hv); err != nil {
		return nil, err
	}
	return nil, m.do(ctx, func(context.Context) {
		m.thaw.Stop()
		m.setFrozen(false)
	})
}

// thawGuest lets the file systems go on that nobody thawed in time; until that succeeds,
// again and again.
func (m *machine) thawGuest(ctx context.Context) {
	m.log.Info("Thawing the guest: nobody did in time")
	m.thaw.Reset(thawAgain)
	go func() {
		asking, cancel := context.WithTimeout(ctx, agentTimeout)
		defer cancel()
		err := guestagent.Thaw(asking, m.hv)
		if err != nil {
			m.log.Warn("Failed to thaw the guest; trying again", "err", err)
			return
		}
		_ = m.do(ctx, func(context.Context) { // fails only at the end
			m.thaw.Stop()
			m.setFrozen(false)
		})
	}()
}

// setFrozen tells the handler that the guest's file systems were made to stand still, or
// go on.
func (m *machine) setFrozen(frozen bool) {
	if m.state.Frozen != frozen {
		m.state.Frozen = frozen
		m.link.Publish(m.state)
	}
}
