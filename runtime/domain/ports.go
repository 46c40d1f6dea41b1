package domain

import (
	"strings"

	v1 "kubevirt.io/api/core/v1"
	"libvirt.org/go/libvirtxml"
)

// spareDevices is how many PCI devices can be added to a machine while it runs.
const spareDevices = 4

// ports adds PCI Express ports for all devices that take one and some to spare: libvirt
// makes ports for the devices of the start only, and none can be added later.
func ports(in Input, domain *libvirtxml.Domain) error {
	if !hotplug(in.VMI) || olderMachine(in.VMI) {
		return nil
	}
	for i := range uint(takenPorts(in.VMI, domain) + spareDevices) {
		port := libvirtxml.DomainController{Type: "pci", Index: new(i + 1), Model: "pcie-root-port"} // 0 is the root
		domain.Devices.Controllers = append(domain.Devices.Controllers, port)
	}
	return nil
}

// takenPorts is how many of domain's devices sit on a port of their own. Old devices share
// a bridge, which takes one.
func takenPorts(vmi *v1.VirtualMachineInstance, domain *libvirtxml.Domain) int {
	taken, old := 0, vmi.Spec.Domain.Devices.Watchdog != nil
	for _, model := range pciModels(domain.Devices) {
		switch {
		case strings.HasPrefix(model, "virtio-transitional"):
			old = true
		case model == "", strings.HasPrefix(model, "virtio"), model == "qemu-xhci", model == "e1000e": // none is virtio
			taken++
		default:
			old = true
		}
	}
	if old {
		taken++
	}
	return taken
}

// pciModels are the models of the devices that sit on the PCI bus, but for those in the chipset.
func pciModels(devices *libvirtxml.DomainDeviceList) []string {
	var models []string
	for i := range devices.Controllers {
		switch controller := &devices.Controllers[i]; controller.Type {
		case "usb", "virtio-serial", "scsi":
			if controller.Model != "none" {
				models = append(models, controller.Model)
			}
		}
	}
	for i := range devices.Disks {
		if devices.Disks[i].Target.Bus == string(v1.DiskBusVirtio) {
			models = append(models, devices.Disks[i].Model)
		}
	}
	for range devices.Filesystems {
		models = append(models, "virtio")
	}
	for i := range devices.Interfaces {
		models = append(models, devices.Interfaces[i].Model.Type)
	}
	for i := range devices.Memorydevs { // what the guest's memory grows by
		models = append(models, devices.Memorydevs[i].Model)
	}
	for i := range devices.RNGs {
		models = append(models, devices.RNGs[i].Model)
	}
	for i := range devices.Inputs {
		if devices.Inputs[i].Bus == "virtio" {
			models = append(models, devices.Inputs[i].Model)
		}
	}
	if devices.VSock != nil {
		models = append(models, devices.VSock.Model)
	}
	if balloon := devices.MemBalloon; balloon != nil && balloon.Model != "none" {
		models = append(models, balloon.Model)
	}
	return models
}

// hotplug says whether devices may be added to the machine while it runs.
func hotplug(vmi *v1.VirtualMachineInstance) bool { return !vmi.Spec.Domain.Devices.DisableHotplug }

// olderMachine says whether the machine has the older bus, whose slots need no ports.
func olderMachine(vmi *v1.VirtualMachineInstance) bool {
	machine := Machine(vmi)
	return machine == "pc" || strings.HasPrefix(machine, "pc-i440fx-")
}
