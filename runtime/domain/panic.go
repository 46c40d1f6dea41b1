package domain

import (
	v1 "kubevirt.io/api/core/v1"
	"libvirt.org/go/libvirtxml"
)

// panicDevices tell libvirt of a crash of the guest's kernel. The model hyperv is an
// ability of KVM's, which emulation lacks as it lacks the rest of hyperv.
func panicDevices(in Input, domain *libvirtxml.Domain) error {
	for _, spec := range in.VMI.Spec.Domain.Devices.PanicDevices {
		device := libvirtxml.DomainPanic{}
		if spec.Model != nil {
			device.Model = string(*spec.Model)
		}
		if device.Model == string(v1.Hyperv) && !in.KVM {
			continue
		}
		domain.Devices.Panics = append(domain.Devices.Panics, device)
	}
	return nil
}
