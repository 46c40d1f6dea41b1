// Package dedicated says how many processors of its node a virtual machine has for itself
// alone: the pod asks for as many, and the launcher deals out as many.
package dedicated

import virtv1 "kubevirt.io/api/core/v1"

// Asked says whether vmi has processors of its node for itself.
func Asked(vmi *virtv1.VirtualMachineInstance) bool {
	cpu := vmi.Spec.Domain.CPU
	return cpu != nil && cpu.DedicatedCPUPlacement
}

// Emulator says whether one of them is for QEMU's own threads.
func Emulator(vmi *virtv1.VirtualMachineInstance) bool {
	return Asked(vmi) && vmi.Spec.Domain.CPU.IsolateEmulatorThread
}

// Realtime says whether processors of the guest come before all else that runs on theirs.
func Realtime(vmi *virtv1.VirtualMachineInstance) bool {
	return Asked(vmi) && vmi.Spec.Domain.CPU.Realtime != nil
}

// Mapped says whether the guest sees the NUMA nodes that its processors are on.
func Mapped(vmi *virtv1.VirtualMachineInstance) bool {
	return Asked(vmi) && vmi.Spec.Domain.CPU.NUMA != nil && vmi.Spec.Domain.CPU.NUMA.GuestMappingPassthrough != nil
}

// CPUs is how many vmi has, whose guest has so many processors: one for each of them and each
// thread of a supplemental pool, and the emulator's.
func CPUs(vmi *virtv1.VirtualMachineInstance, vcpus int64) int64 {
	if threads := vmi.Spec.Domain.IOThreads; threads != nil && threads.SupplementalPoolThreadCount != nil {
		vcpus += int64(*threads.SupplementalPoolThreadCount)
	}
	if Emulator(vmi) {
		vcpus++
	}
	return vcpus
}
