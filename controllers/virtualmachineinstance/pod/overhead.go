package pod

import (
	"math"

	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/utils/ptr"
	virtv1 "kubevirt.io/api/core/v1"

	"github.com/slipway-vm/slipway/internal/dedicated"
	"github.com/slipway-vm/slipway/internal/overhead"
)

// MemoryOverhead returns how much memory the launcher pod of vmi needs beyond the
// guest's own: what is computed times ratio, which is 1 at least, with what the VMI adds to that. It is added to the
// pod's request, and to its limit when it has one.
func MemoryOverhead(vmi *virtv1.VirtualMachineInstance, kvm bool, ratio float64) resource.Quantity {
	guest := guestMemory(vmi)
	machine := overhead.Machine{
		Guest: guest.Value(), VCPUs: VCPUs(vmi), KVM: kvm,
		Graphics: ptr.Deref(vmi.Spec.Domain.Devices.AutoattachGraphicsDevice, true), TPM: hasTPM(vmi), Limited: dedicated.Asked(vmi),
		Filesystems: int64(len(vmi.Spec.Domain.Devices.Filesystems)),
	}
	for _, probe := range []*virtv1.Probe{vmi.Spec.LivenessProbe, vmi.Spec.ReadinessProbe} {
		if throughAgent(probe) {
			machine.AgentProbes++
		}
	}
	bytes := machine.Bytes()
	if ratio > 1 {
		bytes = int64(math.Ceil(float64(bytes) * ratio))
	}
	if memory := vmi.Spec.Domain.Memory; memory != nil && memory.ReservedOverhead != nil && memory.ReservedOverhead.AddedOverhead != nil {
		bytes += memory.ReservedOverhead.AddedOverhead.Value()
	}
	return *resource.NewQuantity(bytes, resource.BinarySI)
}
