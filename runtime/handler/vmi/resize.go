package vmi

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	v1 "kubevirt.io/api/core/v1"

	"github.com/slipway-vm/slipway/internal/names"
	"github.com/slipway-vm/slipway/runtime/handler/session"
	"github.com/slipway-vm/slipway/runtime/protocol"
)

// resizeGuest tells the launcher to change the guest's size, once virt-controller says that
// the pod has the resources.
func (r *Reconciler) resizeGuest(ctx context.Context, s *scope) error {
	want := wantedSize(s.vmi, s.view.State)
	if want == (protocol.Resize{}) {
		return nil
	}
	ctx, stop := context.WithTimeout(ctx, syncTimeout)
	defer stop()
	err := s.session.Resize(ctx, want)
	if errors.Is(err, session.ErrNotConnected) {
		return fmt.Errorf("%w for the launcher to connect again", errWait)
	}
	if err != nil {
		return fmt.Errorf("changing the size of the guest of VMI %s, which stays as it is: %w", s.vmi.Name, err)
	}
	return nil
}

// wantedSize is what the guest does not have of what the spec says and the pod has room for.
func wantedSize(vmi *v1.VirtualMachineInstance, state *protocol.State) (want protocol.Resize) {
	cpu := vmi.Spec.Domain.CPU
	if cpu != nil && state.VCPUs != 0 && allowed(vmi, v1.VirtualMachineInstanceVCPUChange) {
		if count := uint(cpu.Sockets) * uint(cpu.Cores) * uint(cpu.Threads); count != state.VCPUs {
			want.VCPUs = count
		}
	}
	memory := vmi.Spec.Domain.Memory
	if memory != nil && memory.Guest != nil && state.Memory != nil && allowed(vmi, v1.VirtualMachineInstanceMemoryChange) {
		if bytes := memory.Guest.Value(); bytes != state.Memory.Requested {
			want.Memory = bytes
		}
	}
	return want
}

func allowed(vmi *v1.VirtualMachineInstance, kind v1.VirtualMachineInstanceConditionType) bool {
	for _, c := range vmi.Status.Conditions {
		if c.Type == kind {
			return c.Status == corev1.ConditionTrue && c.Reason == names.ReasonPodResized
		}
	}
	return false
}

// memoryStatus is the guest's memory as it is.
func memoryStatus(memory *protocol.Memory) *v1.MemoryStatus {
	if memory == nil {
		return nil
	}
	bytes := func(value int64) *resource.Quantity { return resource.NewQuantity(value, resource.BinarySI) }
	return &v1.MemoryStatus{
		GuestAtBoot: bytes(memory.AtBoot), GuestRequested: bytes(memory.Requested), GuestCurrent: bytes(memory.Current),
	}
}

// currentTopology is the topology of the guest's processors as they are.
func currentTopology(vmi *v1.VirtualMachineInstance, count uint) *v1.CPUTopology {
	cpu := vmi.Spec.Domain.CPU
	if cpu == nil || count == 0 || cpu.Cores == 0 || cpu.Threads == 0 {
		return nil
	}
	each := uint(cpu.Cores) * uint(cpu.Threads)
	return &v1.CPUTopology{Sockets: uint32(count / each), Cores: cpu.Cores, Threads: cpu.Threads} //nolint:gosec // admission bounds it
}
