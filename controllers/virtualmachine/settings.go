package virtualmachine

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/api/resource"
	virtv1 "kubevirt.io/api/core/v1"

	"github.com/slipway-vm/slipway/controllers/virtualmachineinstance/defaults"
)

// defaultHotplugRatio is the field's: a running guest may grow to so many times its size.
const defaultHotplugRatio = 4

// settings are the parts of the KubeVirt object that say how VMs start, and change while they run.
type settings struct {
	// stage: changes wait for the next start.
	stage bool
	// maxSockets is what a VM gets that names none; 0 for a multiple of its sockets, by ratio.
	maxSockets, ratio uint32
	// maxGuest is the memory to which the guest of a VM that names no maximum may grow; nil for none.
	maxGuest *resource.Quantity
	// cluster is what VMs are given that do not say it themselves.
	cluster defaults.Cluster
	// policy says how a VM has its instance type and preference.
	policy virtv1.InstancetypeReferencePolicy
	// tracking says of which VMs it is recorded what is written to their disks.
	tracking tracking
}

func (r *Reconciler) readSettings(ctx context.Context) (settings, error) {
	list := &virtv1.KubeVirtList{}
	if err := r.List(ctx, list); err != nil {
		return settings{}, fmt.Errorf("reading the KubeVirt object: %w", err)
	}
	if len(list.Items) == 0 {
		return settingsOf(&virtv1.KubeVirt{}), nil
	}
	return settingsOf(&list.Items[0]), nil
}

func settingsOf(kv *virtv1.KubeVirt) settings {
	s := settings{ratio: defaultHotplugRatio, cluster: defaults.Of(&kv.Spec.Configuration), tracking: trackingOf(kv)}
	config := kv.Spec.Configuration
	if instancetypes := config.Instancetype; instancetypes != nil && instancetypes.ReferencePolicy != nil {
		s.policy = *instancetypes.ReferencePolicy
	}
	if strategy := config.VMRolloutStrategy; strategy != nil {
		s.stage = *strategy == virtv1.VMRolloutStrategyStage
	}
	if dev := config.DeveloperConfiguration; dev != nil && dev.UseEmulation {
		// Emulation is slower for a guest that may have several processors, though it has
		// one: only who asks for them pays.
		s.ratio = 1
	}
	if live := config.LiveUpdateConfiguration; live != nil {
		if live.MaxHotplugRatio > 0 {
			s.ratio = live.MaxHotplugRatio
		}
		if live.MaxCpuSockets != nil {
			s.maxSockets = *live.MaxCpuSockets
		}
		s.maxGuest = live.MaxGuest
	}
	return s
}

// maxVCPUs bounds what a guest gets unasked to grow to, as in the field.
const maxVCPUs = 512

// setMaxSockets gives a new instance that names none the number of sockets to which it can
// grow while it runs. The topology is complete by then. Processors that a pod has for itself
// are its for as long as it runs, and no others.
func setMaxSockets(spec *virtv1.VirtualMachineInstanceSpec, s settings) {
	cpu := spec.Domain.CPU
	if cpu.MaxSockets != 0 || cpu.DedicatedCPUPlacement || s.stage {
		return
	}
	sockets, each := cpu.Sockets, cpu.Cores*cpu.Threads
	most := s.maxSockets
	if most == 0 {
		most = min(sockets*s.ratio, maxVCPUs/min(each, maxVCPUs))
	}
	if most > sockets {
		cpu.MaxSockets = most
	}
}

// setMaxGuest gives a new instance that names none the memory to which its guest can grow
// while it runs, where the cluster names one: the device for it is not free.
func setMaxGuest(spec *virtv1.VirtualMachineInstanceSpec, s settings) {
	memory := spec.Domain.Memory
	if memory == nil || memory.Guest == nil || memory.MaxGuest != nil || memory.Hugepages != nil || s.stage || s.maxGuest == nil {
		return
	}
	if s.maxGuest.Cmp(*memory.Guest) > 0 {
		memory.MaxGuest = s.maxGuest
	}
}
