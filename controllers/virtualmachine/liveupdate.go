package virtualmachine

import (
	"cmp"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/utils/ptr"
	virtv1 "kubevirt.io/api/core/v1"

	"github.com/slipway-vm/slipway/controllers/hotplug"
)

// Why a change of what could be changed live waits for a restart; those that the field
// has, in its words.
const (
	messageTooManySockets = "CPU sockets updated in template spec to a value higher than what's available"
	messageFewerSockets   = "Reduction of CPU socket count requires a restart"
	messageMultiQueue     = "Changes to CPU sockets require a restart when NetworkInterfaceMultiQueue is enabled"
	messageLessMemory     = "memory updated in template spec to a value lower than what the VM started with"
	messageTooMuchMemory  = "memory updated in template spec to a value higher than what's available"
	messageShrinkMemory   = "Reduction of guest memory requires a restart"
	messageUnevenMemory   = "guest memory grows by multiples of 2Mi while the guest runs"
	messageOldLauncher    = "the VM was started by an earlier version, whose launcher cannot change the guest while it runs"
)

// comparison is what a change is judged by.
type comparison struct {
	// was and is are the complete specs of the VM at its start and now.
	was, is *virtv1.VirtualMachineInstanceSpec
	vmi     *virtv1.VirtualMachineInstance
	// stage: nothing is changed live.
	stage bool
}

// change is what follows from a changed VM for its running instance.
type change struct {
	// restart says why the guest cannot take the change up while it runs; "" when it can.
	restart string
	// wait: it is too early to say; the instance's next event is the time for it.
	wait bool
	// sockets is the number that the instance is to have; 0 to leave it.
	sockets uint32
	// guest is the memory in bytes that the instance is to have; 0 to leave it.
	guest int64
}

// apply makes the change in the instance's spec.
func (c change) apply(spec *virtv1.VirtualMachineInstanceSpec) {
	if c.sockets != 0 {
		spec.Domain.CPU.Sockets = c.sockets
	}
	if c.guest != 0 {
		spec.Domain.Memory.Guest = resource.NewQuantity(c.guest, resource.BinarySI)
	}
}

// changeOf judges a changed VM: one change that needs a restart holds back all.
func changeOf(c comparison) change {
	was := c.was.DeepCopy()
	if !c.stage {
		was.Domain.CPU.Sockets = c.is.Domain.CPU.Sockets
		if was.Domain.Memory != nil && c.is.Domain.Memory != nil {
			was.Domain.Memory.Guest = c.is.Domain.Memory.Guest
		}
	}
	if !equality.Semantic.DeepEqual(hotplug.Fixed(was), hotplug.Fixed(c.is)) {
		return change{restart: messageRestartNeeded}
	}
	if c.stage {
		return change{}
	}
	sockets, memory := socketsOf(c), memoryOf(c)
	return change{
		restart: cmp.Or(sockets.restart, memory.restart), wait: sockets.wait || memory.wait,
		sockets: sockets.sockets, guest: memory.guest,
	}
}

// memoryOf judges the guest's memory.
func memoryOf(c comparison) change {
	want, memory := guestMemory(c.is), c.vmi.Spec.Domain.Memory
	if want == 0 || want == guestMemory(&c.vmi.Spec) {
		return change{}
	}
	now := c.vmi.Status.Memory
	switch {
	case c.vmi.Status.Phase != virtv1.Running:
		return change{wait: true}
	case now == nil || now.GuestAtBoot == nil || now.GuestRequested == nil:
		return change{restart: messageOldLauncher}
	case want < now.GuestAtBoot.Value():
		return change{restart: messageLessMemory}
	case want < now.GuestRequested.Value():
		return change{restart: messageShrinkMemory}
	case memory.MaxGuest == nil || want > memory.MaxGuest.Value():
		return change{restart: messageTooMuchMemory}
	case (want-now.GuestAtBoot.Value())%memoryBlock != 0:
		return change{restart: messageUnevenMemory}
	case underWay(c.vmi, virtv1.VirtualMachineInstanceMemoryChange):
		return change{wait: true}
	}
	return change{guest: want}
}

// memoryBlock is the size in bytes of the pieces in which a running guest's memory grows.
const memoryBlock = 2 << 20

// guestMemory is what spec says of the guest's memory, in bytes; 0 when it says nothing.
func guestMemory(spec *virtv1.VirtualMachineInstanceSpec) int64 {
	if spec.Domain.Memory == nil || spec.Domain.Memory.Guest == nil {
		return 0
	}
	return spec.Domain.Memory.Guest.Value()
}

// socketsOf judges the number of CPU sockets.
func socketsOf(c comparison) change {
	want, cpu := c.is.Domain.CPU.Sockets, c.vmi.Spec.Domain.CPU
	if cpu == nil || want == cpu.Sockets {
		return change{}
	}
	now := c.vmi.Status.CurrentCPUTopology
	switch {
	case c.vmi.Status.Phase != virtv1.Running:
		return change{wait: true}
	case now == nil:
		return change{restart: messageOldLauncher}
	case want > max(cpu.MaxSockets, cpu.Sockets):
		return change{restart: messageTooManySockets}
	case want < now.Sockets:
		return change{restart: messageFewerSockets}
	case ptr.Deref(c.is.Domain.Devices.NetworkInterfaceMultiQueue, false):
		return change{restart: messageMultiQueue}
	case underWay(c.vmi, virtv1.VirtualMachineInstanceVCPUChange):
		return change{wait: true}
	}
	return change{sockets: want}
}

// underWay says whether the instance is being changed in this respect.
func underWay(vmi *virtv1.VirtualMachineInstance, kind virtv1.VirtualMachineInstanceConditionType) bool {
	c := vmiCondition(vmi, kind)
	return c != nil && c.Status == corev1.ConditionTrue
}

func changeError(s *scope, err error) error {
	return fmt.Errorf("changing the running VirtualMachineInstance %s/%s: %w", s.vm.Namespace, s.vm.Name, err)
}
