package launcher

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/slipway-vm/slipway/runtime/guestagent"
	"github.com/slipway-vm/slipway/runtime/protocol"
	"github.com/slipway-vm/slipway/runtime/protocol/wire"
)

// handle answers a request of the handler.
func (m *machine) handle(ctx context.Context, request wire.Request) (any, error) {
	if request.Type == protocol.TypeSync {
		return m.handleSync(ctx, request) // it keeps the files
	}
	defer closeAll(request.Files)
	switch request.Type {
	case protocol.TypeShutdown:
		var shutdown protocol.Shutdown
		if err := request.Decode(&shutdown); err != nil {
			return nil, err
		}
		return nil, m.do(ctx, func(context.Context) { m.shutdown(time.Duration(shutdown.GracePeriodSeconds) * time.Second) })
	case protocol.TypeDestroy:
		return nil, m.do(ctx, func(context.Context) { m.destroy("the virtual machine was powered off by force") })
	case protocol.TypeGuestExec:
		return m.handleExec(ctx, request)
	case protocol.TypeStats:
		return m.handleStats(ctx)
	case protocol.TypeHealth:
		return m.health.look(ctx, m.link.State().Phase), nil
	}
	answer, known := controls[request.Type]
	if !known {
		return nil, fmt.Errorf("this launcher does not know the request %s; restart the VM to get a newer one", request.Type)
	}
	state, err := m.alive(ctx)
	if err != nil {
		return nil, err
	}
	m.log.Info("Answering a request", "type", request.Type)
	return answer(m, ctx, request, state)
}

func (m *machine) handleSync(ctx context.Context, request wire.Request) (any, error) {
	var sync protocol.Sync
	if err := request.Decode(&sync); err != nil {
		closeAll(request.Files)
		return nil, err
	}
	var state protocol.State
	var syncErr error
	err := m.do(ctx, func(machine context.Context) {
		syncErr = m.sync(machine, sync, request.Files)
		state = m.state
	})
	return state, errors.Join(err, syncErr)
}

func (m *machine) handleExec(ctx context.Context, request wire.Request) (any, error) {
	var run protocol.GuestExec
	if err := request.Decode(&run); err != nil {
		return nil, err
	}
	state, err := m.alive(ctx)
	if err != nil {
		return nil, err
	}
	if !state.AgentConnected {
		return nil, errNoAgent
	}
	return guestagent.Exec(ctx, m.hv, run)
}

var errNoAgent = errors.New("the guest agent is not connected; install and start qemu-guest-agent in the guest")

// alive returns the state of a guest that was started and has not ended.
func (m *machine) alive(ctx context.Context) (protocol.State, error) {
	var state protocol.State
	if err := m.do(ctx, func(context.Context) { state = m.state }); err != nil {
		return state, err
	}
	if state.Phase != protocol.PhaseRunning && state.Phase != protocol.PhasePaused {
		return state, errors.New("the guest is not running; start it first")
	}
	return state, nil
}
