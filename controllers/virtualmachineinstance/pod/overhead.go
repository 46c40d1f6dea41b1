package pod

import (
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/utils/ptr"
	virtv1 "kubevirt.io/api/core/v1"
)

// What a virtual machine needs beyond its guest's memory. The parts are the working
// set of one launcher pod (program text counts once per node, but is charged to the
// first pod that reads it, so it is included), rounded up:
//
//	guest/512     page tables of the guest's memory
//	45Mi          virt-launcher and libvirt's per-VM daemon
//	60Mi          QEMU itself: heap, device models, firmware
//	8Mi per vCPU  stacks and per-CPU state
//	16Mi          the graphics device's memory, when there is one
//	guest/8       without KVM: the buffer of translated code, from 32Mi to 64Mi as the domain bounds it
//	8Mi           without KVM: that buffer's tables
const (
	overheadLauncher  = 45 << 20
	overheadQEMU      = 60 << 20
	overheadPerCPU    = 8 << 20
	overheadGraphics  = 16 << 20
	overheadEmulation = 8 << 20
	minTranslation    = 32 << 20
	maxTranslation    = 64 << 20
	translationShare  = 8
	pageTableShare    = 512
)

// MemoryOverhead returns how much memory the launcher pod of vmi needs beyond the
// guest's own; it is added to the pod's request, and to its limit when it has one.
func MemoryOverhead(vmi *virtv1.VirtualMachineInstance, kvm bool) resource.Quantity {
	guest := guestMemory(vmi)
	bytes := guest.Value()/pageTableShare + overheadLauncher + overheadQEMU + overheadPerCPU*VCPUs(vmi)
	if ptr.Deref(vmi.Spec.Domain.Devices.AutoattachGraphicsDevice, true) {
		bytes += overheadGraphics
	}
	if !kvm {
		bytes += overheadEmulation + min(max(guest.Value()/translationShare, minTranslation), maxTranslation)
	}
	return *resource.NewQuantity(bytes, resource.BinarySI)
}
