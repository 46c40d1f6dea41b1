package domain

import (
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	v1 "kubevirt.io/api/core/v1"
	"libvirt.org/go/libvirtxml"
)

// GuestMemory is the guest's RAM in bytes: memory.guest, else the memory that the
// VMI requests, else its limit.
func GuestMemory(vmi *v1.VirtualMachineInstance) (int64, error) {
	spec := &vmi.Spec.Domain
	if spec.Memory != nil && spec.Memory.Guest != nil {
		return spec.Memory.Guest.Value(), nil
	}
	if request, ok := spec.Resources.Requests[corev1.ResourceMemory]; ok {
		return request.Value(), nil
	}
	if limit, ok := spec.Resources.Limits[corev1.ResourceMemory]; ok {
		return limit.Value(), nil
	}
	return 0, errors.New("the guest has no memory: set spec.domain.memory.guest")
}

func memory(in Input, domain *libvirtxml.Domain) error {
	bytes, err := GuestMemory(in.VMI)
	if err != nil {
		return err
	}
	const mebibyte = 1 << 20
	if bytes < mebibyte {
		return fmt.Errorf("guest memory of %d bytes is under 1 MiB: correct spec.domain.memory.guest", bytes)
	}
	domain.Memory = &libvirtxml.DomainMemory{Value: uint(bytes / 1024), Unit: "KiB"}
	return nil
}

// MemoryBlock is the size in bytes of the pieces in which a running guest's memory grows.
const MemoryBlock = 2 << 20

// GrowableMemory is how many bytes the running guest can be given beyond its memory, in
// whole blocks.
func GrowableMemory(vmi *v1.VirtualMachineInstance) (int64, error) {
	spec := vmi.Spec.Domain.Memory
	if spec == nil || spec.MaxGuest == nil {
		return 0, nil
	}
	bytes, err := GuestMemory(vmi)
	if err != nil {
		return 0, err
	}
	return max(spec.MaxGuest.Value()-bytes, 0) / MemoryBlock * MemoryBlock, nil
}

// growth adds the device by which the guest's memory grows, empty as yet. It belongs to a
// NUMA cell, so a guest that has it is one cell. It comes after memory and cpu.
func growth(in Input, domain *libvirtxml.Domain) error {
	bytes, err := GrowableMemory(in.VMI)
	if err != nil || bytes == 0 {
		return err
	}
	memory, more := domain.Memory.Value, uint(bytes/1024)
	domain.MaximumMemory = &libvirtxml.DomainMaxMemory{Value: memory + more, Unit: "KiB", Slots: 1}
	domain.CPU.Numa = &libvirtxml.DomainNuma{Cell: []libvirtxml.DomainCell{{
		ID: new(uint(0)), CPUs: fmt.Sprintf("0-%d", domain.VCPU.Value-1), Memory: memory, Unit: "KiB",
	}}}
	domain.Devices.Memorydevs = append(domain.Devices.Memorydevs, libvirtxml.DomainMemorydev{
		Model: MemoryModel,
		Target: &libvirtxml.DomainMemorydevTarget{
			Size:      &libvirtxml.DomainMemorydevTargetSize{Value: more, Unit: "KiB"},
			Node:      &libvirtxml.DomainMemorydevTargetNode{Value: 0},
			Block:     &libvirtxml.DomainMemorydevTargetBlock{Value: MemoryBlock / 1024, Unit: "KiB"},
			Requested: &libvirtxml.DomainMemorydevTargetRequested{Value: 0, Unit: "KiB"},
		},
	})
	return nil
}

// MemoryModel is libvirt's word for the device by which memory grows.
const MemoryModel = "virtio-mem"
