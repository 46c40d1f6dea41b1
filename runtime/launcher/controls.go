package launcher

import (
	"context"
	"fmt"
	"time"

	"github.com/slipway-vm/slipway/runtime/guestagent"
	"github.com/slipway-vm/slipway/runtime/protocol"
	"github.com/slipway-vm/slipway/runtime/protocol/wire"
)

// control answers a request about a guest that is in state. It runs in the request's own
// goroutine, for libvirt and the guest's agent may take their time.
type control func(m *machine, ctx context.Context, request wire.Request, state protocol.State) (any, error)

// controls are what users ask for, in the order of the protocol's list.
var controls = map[wire.Type]control{
	protocol.TypePause:       (*machine).pause,
	protocol.TypeUnpause:     (*machine).unpause,
	protocol.TypeReset:       (*machine).reset,
	protocol.TypeSoftReboot:  (*machine).softReboot,
	protocol.TypeFreeze:      (*machine).freeze,
	protocol.TypeUnfreeze:    (*machine).unfreeze,
	protocol.TypeConnect:     (*machine).connect,
	protocol.TypeScreenshot:  (*machine).screenshot,
	protocol.TypeGuestInfo:   (*machine).guestInfo,
	protocol.TypeUsers:       (*machine).users,
	protocol.TypeFilesystems: (*machine).filesystems,
	protocol.TypePlug:        (*machine).plug,
	protocol.TypeUnplug:      (*machine).unplug,
	protocol.TypeResize:      (*machine).resize,
	protocol.TypeMemoryDump:  (*machine).dumpMemory,
	protocol.TypeBackup:      (*machine).backUp,
	protocol.TypeAbortBackup: (*machine).abortBackup,
}

// pause stops the guest; libvirt's event changes the phase.
func (m *machine) pause(_ context.Context, _ wire.Request, state protocol.State) (any, error) {
	if state.Phase == protocol.PhasePaused {
		return nil, nil
	}
	if dumping(state) {
		return nil, errDumping
	}
	return nil, m.hv.Suspend()
}

// unpause lets the guest go on, and sets its clock if its agent can: that takes its time,
// and a guest with a wrong clock runs all the same.
func (m *machine) unpause(ctx context.Context, _ wire.Request, state protocol.State) (any, error) {
	if state.Phase != protocol.PhasePaused {
		return nil, nil
	}
	if dumping(state) {
		return nil, errDumping
	}
	if err := m.hv.Resume(); err != nil || !state.AgentConnected {
		return nil, err
	}
	go func() {
		asking, cancel := context.WithTimeout(ctx, agentTimeout)
		defer cancel()
		if err := guestagent.SetTime(asking, m.hv, time.Now()); err != nil {
			m.log.Warn("Failed to set the guest's clock after the pause", "err", err)
		}
	}()
	return nil, nil
}

func (m *machine) reset(_ context.Context, _ wire.Request, state protocol.State) (any, error) {
	if dumping(state) {
		return nil, errDumping
	}
	return nil, m.hv.Reset()
}

func (m *machine) softReboot(_ context.Context, _ wire.Request, state protocol.State) (any, error) {
	return nil, m.hv.Reboot(state.AgentConnected)
}

// screenshot writes to the file that came with the request, from its beginning.
func (m *machine) screenshot(ctx context.Context, request wire.Request, _ protocol.State) (any, error) {
	if len(request.Files) != 1 {
		return nil, fmt.Errorf("a screenshot is written to one file, and %d came", len(request.Files))
	}
	err := m.hv.Screenshot(request.Files[0])
	_ = m.do(ctx, func(context.Context) { m.trim() }) // fails only at the end
	return nil, err
}

// guestInfo tells what the agent tells, and that somebody asked for a freeze.
func (m *machine) guestInfo(ctx context.Context, _ wire.Request, state protocol.State) (any, error) {
	if !state.AgentConnected {
		return nil, errNoAgent
	}
	info, err := guestagent.Info(ctx, m.hv)
	if info.GAVersion == "" {
		return nil, err
	}
	if err != nil {
		m.log.Warn("The guest agent did not tell everything", "err", err)
	}
	if state.Frozen {
		info.FSFreezeStatus = protocol.FSFrozen
	}
	return info, nil
}

func (m *machine) users(ctx context.Context, _ wire.Request, state protocol.State) (any, error) {
	if !state.AgentConnected {
		return nil, errNoAgent
	}
	return guestagent.Users(ctx, m.hv)
}

func (m *machine) filesystems(ctx context.Context, _ wire.Request, state protocol.State) (any, error) {
	if !state.AgentConnected {
		return nil, errNoAgent
	}
	return guestagent.Filesystems(ctx, m.hv)
}
