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
// whoever asks may be gone before the agent has answered, and a freeze that takes too long
// for an answer takes place all the same.
func (m *machine) freeze(ctx context.Context, request wire.Request, state protocol.State) (any, error) {
	var freeze protocol.Freeze
	if err := request.Decode(&freeze); err != nil {
		return nil, err
	}
	if !state.AgentConnected {
		return nil, errNoAgent
	}
	frozen, err := guestagent.Frozen(ctx, m.hv)
	if err != nil {
		return nil, err
	}
	limit := cmp.Or(time.Duration(freeze.UnfreezeTimeoutSeconds)*time.Second, defaultFreeze)
	err = m.do(ctx, func(context.Context) {
		m.thaw.Reset(max(limit, 0))
		m.setFrozen(true)
	})
	if err != nil || frozen {
		return nil, err
	}
	freezeErr := guestagent.Freeze(ctx, m.hv)
	if freezeErr == nil {
		return nil, nil
	}
	if frozen, err := guestagent.Frozen(ctx, m.hv); err == nil && !frozen {
		_ = m.do(ctx, func(context.Context) { m.thawed() }) // fails only at the end
	}
	return nil, freezeErr
}

func (m *machine) unfreeze(ctx context.Context, _ wire.Request, state protocol.State) (any, error) {
	if !state.AgentConnected {
		return nil, errNoAgent
	}
	if err := guestagent.Thaw(ctx, m.hv); err != nil {
		return nil, err
	}
	return nil, m.do(ctx, func(context.Context) { m.thawed() })
}

// thawGuest lets the file systems go on that nobody thawed in time; until that succeeds,
// again and again.
func (m *machine) thawGuest(ctx context.Context) {
	m.thaw.Reset(thawAgain)
	if !m.state.AgentConnected {
		return // it may come back
	}
	m.log.Info("Thawing the guest: nobody did in time")
	go func() {
		asking, cancel := context.WithTimeout(ctx, agentTimeout)
		defer cancel()
		if err := guestagent.Thaw(asking, m.hv); err != nil {
			m.log.Warn("Failed to thaw the guest; trying again", "err", err)
			return
		}
		_ = m.do(ctx, func(context.Context) { m.thawed() }) // fails only at the end
	}()
}

// thawed notes that the file systems go on.
func (m *machine) thawed() {
	m.thaw.Stop()
	m.setFrozen(false)
}

// setFrozen tells the handler that the guest's file systems were made to stand still, or
// go on.
func (m *machine) setFrozen(frozen bool) {
	if m.state.Frozen != frozen {
		m.state.Frozen = frozen
		m.link.Publish(m.state)
	}
}
