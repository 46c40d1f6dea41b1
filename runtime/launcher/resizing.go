package launcher

import (
	"context"
	"time"

	v1 "kubevirt.io/api/core/v1"

	"github.com/slipway-vm/slipway/runtime/domain"
	"github.com/slipway-vm/slipway/runtime/protocol"
	"github.com/slipway-vm/slipway/runtime/protocol/wire"
)

// The guest's kernel finds a new processor by itself, but some systems leave it to somebody
// to switch it on. The agent is asked to, for as long as the kernel may take to find it.
const (
	onlineEvery = time.Second
	onlineFor   = 15 * time.Second
)

// noteSize says what the guest was started with.
func (m *machine) noteSize(vmi *v1.VirtualMachineInstance) {
	m.state.VCPUs = domain.VCPUs(vmi)
	if bytes, err := domain.GuestMemory(vmi); err == nil {
		m.state.Memory = &protocol.Memory{AtBoot: bytes, Requested: bytes, Current: bytes}
	}
}

// resize changes the running guest's size and tells of it.
func (m *machine) resize(ctx context.Context, request wire.Request, state protocol.State) (any, error) {
	var want protocol.Resize
	if err := request.Decode(&want); err != nil {
		return nil, err
	}
	if want.VCPUs != 0 && want.VCPUs != state.VCPUs {
		if err := m.addVCPUs(ctx, want.VCPUs, state); err != nil {
			return nil, err
		}
	}
	if want.Memory != 0 && state.Memory != nil && want.Memory != state.Memory.Requested {
		return nil, m.addMemory(ctx, want.Memory, state)
	}
	return nil, nil
}

// addMemory offers the guest more memory. How much it takes is told by libvirt's event.
func (m *machine) addMemory(ctx context.Context, bytes int64, state protocol.State) error {
	if err := m.hv.OfferMemory(bytes - state.Memory.AtBoot); err != nil {
		return err
	}
	return m.do(ctx, func(context.Context) {
		changed := *m.state.Memory
		changed.Requested = bytes
		m.state.Memory = &changed
		m.log.Info("The guest was offered other memory", "bytes", bytes)
		m.link.Publish(m.state)
	})
}

// memoryTaken notes how much of the offered memory the guest uses.
func (m *machine) memoryTaken(bytes int64) {
	if m.state.Memory == nil {
		return
	}
	changed := *m.state.Memory
	changed.Current = changed.AtBoot + bytes
	m.state.Memory = &changed
	m.link.Publish(m.state)
}

func (m *machine) addVCPUs(ctx context.Context, count uint, state protocol.State) error {
	if err := m.hv.SetVCPUs(count); err != nil {
		return err
	}
	count, err := m.hv.VCPUs()
	if err != nil {
		return err
	}
	if state.AgentConnected {
		go m.switchOn(ctx, count)
	}
	return m.do(ctx, func(context.Context) {
		m.state.VCPUs = count
		m.log.Info("The guest has other processors", "count", count)
		m.link.Publish(m.state)
	})
}

// switchOn asks the guest's agent to use count processors, until it does.
func (m *machine) switchOn(ctx context.Context, count uint) {
	ctx, cancel := context.WithTimeout(ctx, onlineFor)
	defer cancel()
	again := time.NewTicker(onlineEvery)
	defer again.Stop()
	for {
		err := m.hv.UseVCPUs(count)
		if err == nil {
			return
		}
		select {
		case <-ctx.Done():
			m.log.Warn("The guest's agent did not switch all processors on", "count", count, "err", err)
			return
		case <-again.C:
		}
	}
}
