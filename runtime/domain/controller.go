package domain

import (
	v1 "kubevirt.io/api/core/v1"
	"libvirt.org/go/libvirtxml"
)

// controllers adds those whose model libvirt would not choose as wanted; it makes
// the rest (PCI ports, SATA) itself. Without a USB device there is no USB bus.
func controllers(in Input, domain *libvirtxml.Domain) error {
	zero := uint(0)
	usb := libvirtxml.DomainController{Type: "usb", Index: &zero, Model: "none"}
	if needsUSB(in.VMI) {
		usb.Model = "qemu-xhci"
	}
	domain.Devices.Controllers = []libvirtxml.DomainController{
		usb,
		{Type: "virtio-serial", Index: &zero, Model: virtioModel(in.VMI)},
	}
	if usesBus(in.VMI, v1.DiskBusSCSI) || hotplug(in.VMI) {
		scsi := libvirtxml.DomainController{Type: "scsi", Index: &zero, Model: virtioModel(in.VMI)}
		domain.Devices.Controllers = append(domain.Devices.Controllers, scsi)
	}
	if in.VMI.Annotations[v1.DisablePCIHole64] == "true" {
		domain.Devices.Controllers = append(domain.Devices.Controllers, lowPCI(olderMachine(in.VMI), &zero))
	}
	return nil
}

// lowPCI is the root of PCI without a window above 4 GiB, over which guests as old as Windows XP stumble.
func lowPCI(older bool, index *uint) libvirtxml.DomainController {
	model := "pcie-root"
	if older {
		model = "pci-root"
	}
	return libvirtxml.DomainController{
		Type: "pci", Index: index, Model: model,
		PCI: &libvirtxml.DomainControllerPCI{Hole64: &libvirtxml.DomainControllerPCIHole64{Size: 0, Unit: "KiB"}},
	}
}

func needsUSB(vmi *v1.VirtualMachineInstance) bool {
	if usesBus(vmi, v1.DiskBusUSB) || autoTablet(vmi) || RedirectsUSB(vmi) {
		return true
	}
	for _, input := range vmi.Spec.Domain.Devices.Inputs {
		if inputBus(input) == v1.InputBusUSB {
			return true
		}
	}
	return false
}

func usesBus(vmi *v1.VirtualMachineInstance, bus v1.DiskBus) bool {
	for i := range vmi.Spec.Domain.Devices.Disks {
		if diskBus(&vmi.Spec.Domain.Devices.Disks[i]) == bus {
			return true
		}
	}
	return false
}
