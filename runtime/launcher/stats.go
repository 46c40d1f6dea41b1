package launcher

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	v1 "kubevirt.io/api/core/v1"

	"github.com/slipway-vm/slipway/runtime/guestagent"
	"github.com/slipway-vm/slipway/runtime/protocol"
)

const (
	// surveyPatience is how long a measurement waits for the guest's agent.
	surveyPatience = time.Second
	// surveyRest is how long an agent that took longer is left alone, for others want it, too.
	surveyRest = time.Minute
	// A guest's agent may say what it likes: at most so many file systems are told of, and none
	// with a longer name, in bytes.
	maxFilesystems, maxName = 64, 256
)

// survey asks the guest's agent for what it alone knows, one question at a time.
type survey struct {
	mu    sync.Mutex  // held until the agent has answered, however late
	after time.Time   // when it may be asked again
	load  atomic.Bool // whether it knows the guest's load
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
	told := make(chan answer, answers)
	patience := time.NewTimer(surveyPatience)
	defer patience.Stop()
	go func() {
		defer close(told)
		m.askForStats(context.WithoutCancel(ctx), state, told)
	}()
	stats, err := m.hv.Stats()
	for {
		select {
		case add, more := <-told:
			if !more {
				return stats, err
			}
			add(&stats)
		case <-patience.C: // libvirt waits longer for an agent that hangs than it is asked to
			return stats, err
		}
	}
}

// answer puts what the agent told into stats.
type answer func(stats *protocol.Stats)

// answers are as many as askForStats tells at most.
const answers = 2

// askForStats asks the agent, unless the file systems stand still, for then it would not
// answer, or it was slow the last time. An agent that is away now is no fault, and the rest is
// known without it.
func (m *machine) askForStats(ctx context.Context, state protocol.State, told chan<- answer) {
	if !state.AgentConnected || state.Frozen || state.Phase != protocol.PhaseRunning || !m.surveying.mu.TryLock() {
		return
	}
	defer m.surveying.mu.Unlock()
	if time.Now().Before(m.surveying.after) {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, surveyPatience)
	defer cancel()
	begun := time.Now()
	if m.surveying.load.Load() { // first, for file systems may make the agent wait
		if load, err := guestagent.Load(ctx, m.hv); err == nil {
			told <- func(stats *protocol.Stats) { stats.Load = load }
		}
	}
	if list, err := guestagent.Filesystems(ctx, m.hv); err == nil {
		told <- func(stats *protocol.Stats) { stats.Filesystems = believable(list.Items) }
	}
	if now := time.Now(); now.Sub(begun) > surveyPatience {
		m.surveying.after = now.Add(surveyRest)
	}
}

// believable leaves out what would only fill the memory of who keeps it.
func believable(all []v1.VirtualMachineInstanceFileSystem) []v1.VirtualMachineInstanceFileSystem {
	all = slices.DeleteFunc(all, func(one v1.VirtualMachineInstanceFileSystem) bool {
		return max(len(one.DiskName), len(one.MountPoint), len(one.FileSystemType)) > maxName
	})
	return all[:min(len(all), maxFilesystems)]
}
