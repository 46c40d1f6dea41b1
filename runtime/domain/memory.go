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
