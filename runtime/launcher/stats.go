package launcher

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	v1 "kubevirt.io/api/core/v1"

	"github.com/slipway-vm/slipway/runtime/guestagent"
	"github.com/slipway-vm/slipway/runtime/protocol"
)

const (
	// filesystemsPatience is how long a measurement waits for the guest's agent.
	filesystemsPatience = time.Second
	// surveyRest is how long an agent that took longer is left alone, for others want it, too.
	surveyRest = time.Minute
	// A guest's agent may say what it likes: at most so many file systems are told of, and none
	// with a longer name, in bytes.
	maxFilesystems, maxName = 64, 256
)

// survey is the question for the guest's file systems, of which one is asked at a time.
type survey struct {
	mu    sync.Mutex // held until the agent has answered, however late
	after time.Time  // when it may be asked again
}

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
	patience := time.NewTimer(filesystemsPatience)
	defer patience.Stop()
	go func() { told <- m.guestFilesystems(context.WithoutCancel(ctx), state) }()
	stats, err := m.hv.Stats()
	select {
	case stats.Filesystems = <-told:
	case <-patience.C: // libvirt waits longer for an agent that hangs than it is asked to
	}
	return stats, err
}

// guestFilesystems asks the agent, unless the file systems stand still, for then it would not
// answer, or it was slow the last time.
func (m *machine) guestFilesystems(ctx context.Context, state protocol.State) []v1.VirtualMachineInstanceFileSystem {
	if !state.AgentConnected || state.Frozen || state.Phase != protocol.PhaseRunning || !m.surveying.mu.TryLock() {
		return nil
	}
	defer m.surveying.mu.Unlock()
	if time.Now().Before(m.surveying.after) {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, filesystemsPatience)
	defer cancel()
	begun := time.Now()
	list, err := guestagent.Filesystems(ctx, m.hv)
	if now := time.Now(); now.Sub(begun) > filesystemsPatience {
		m.surveying.after = now.Add(surveyRest)
	}
	if err != nil {
		return nil // an agent that is away now is no fault, and the rest is known without it
	}
	return believable(list.Items)
}

// believable leaves out what would only fill the memory of who keeps it.
func believable(all []v1.VirtualMachineInstanceFileSystem) []v1.VirtualMachineInstanceFileSystem {
	all = slices.DeleteFunc(all, func(one v1.VirtualMachineInstanceFileSystem) bool {
		return max(len(one.DiskName), len(one.MountPoint), len(one.FileSystemType)) > maxName
	})
	return all[:min(len(all), maxFilesystems)]
}
