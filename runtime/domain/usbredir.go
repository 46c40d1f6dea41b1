package domain

import (
	"fmt"

	v1 "kubevirt.io/api/core/v1"
	"libvirt.org/go/libvirtxml"
)

// RedirectsUSB says whether the guest has slots for USB devices of clients.
func RedirectsUSB(vmi *v1.VirtualMachineInstance) bool {
	return vmi.Spec.Domain.Devices.ClientPassthrough != nil
}

// USBSocket is the unix socket that QEMU listens on for a slot, below prefix.
func USBSocket(prefix string, slot int) string { return fmt.Sprintf("%s%d", prefix, slot) }

// usbSlots are where clients plug USB devices of their own into the guest.
func usbSlots(in Input, domain *libvirtxml.Domain) error {
	if !RedirectsUSB(in.VMI) {
		return nil
	}
	for slot := range v1.UsbClientPassthroughMaxNumberOf {
		source := &libvirtxml.DomainChardevSourceUNIX{Mode: "bind", Path: USBSocket(in.USBSockets, slot)}
		domain.Devices.RedirDevs = append(domain.Devices.RedirDevs, libvirtxml.DomainRedirDev{
			Bus: "usb", Source: &libvirtxml.DomainChardevSource{UNIX: source},
		})
	}
	return nil
}
