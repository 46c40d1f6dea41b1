package launcher

import (
	"context"
	"errors"
	"time"

	v1 "kubevirt.io/api/core/v1"

	"github.com/slipway-vm/slipway/runtime/guestagent"
	"github.com/slipway-vm/slipway/runtime/protocol"
)

// filesystemsPatience is how long a measurement waits for the guest's agent.
const filesystemsPatience = time.Second

var errMeasuring = errors.New("the guest is still being measured for an earlier request")

// handleStats tells what the guest used so far. It says nothing in the log, for it is asked
// often. One measurement runs at a time: where libvirt hangs, further ones would only pile up.
func (m *machine) handleStats(ctx context.Context) (any, error) {
	if !m.measuring.TryLock() {
		return nil, errMeasuring
	}
	defer m.measuring.Unlock()
	state, err := m.alive(ctx)
	if err != nil {
		return nil, err
	}
	told := make(chan []v1.VirtualMachineInstanceFileSystem, 1)
	go func() { told <- m.guestFilesystems(ctx, state) }()
	stats, err := m.hv.Stats()
	stats.Filesystems = <-told
	return stats, err
}

// guestFilesystems asks the agent, unless the file systems stand still: then it would not answer.
func (m *machine) guestFilesystems(ctx context.Context, state protocol.State) []v1.VirtualMachineInstanceFileSystem {
	if !state.AgentConnected || state.Frozen || state.Phase != protocol.PhaseRunning {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, filesystemsPatience)
	defer cancel()
	list, err := guestagent.Filesystems(ctx, m.hv)
	if err != nil {
		return nil // an agent that is away now is no fault, and the rest is known without it
	}
	return list.Items
}
