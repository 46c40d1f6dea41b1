package cloudinit

import (
	"fmt"
	"slices"

	v1 "kubevirt.io/api/core/v1"
	"libvirt.org/go/libvirtxml"

	"github.com/slipway-vm/slipway/runtime/domain"
)

// Types of devices.
const (
	DeviceNIC  = "nic"
	DeviceDisk = "disk"
)

// Device tells a guest where a device is that the user has tagged.
type Device struct {
	Type    string   `json:"type"`
	Bus     string   `json:"bus"`
	Address string   `json:"address"`
	MAC     string   `json:"mac,omitempty"`
	Serial  string   `json:"serial,omitempty"`
	Tags    []string `json:"tags"`
}

// TellsDevices says whether a configuration drive of vmi tells of tagged devices.
func TellsDevices(vmi *v1.VirtualMachineInstance) bool {
	drive := func(volume v1.Volume) bool { return volume.CloudInitConfigDrive != nil }
	return len(tags(vmi)) > 0 && slices.ContainsFunc(vmi.Spec.Volumes, drive)
}

// tags are those that the VMI's spec gives to devices, by their aliases.
func tags(vmi *v1.VirtualMachineInstance) map[string]string {
	found := map[string]string{}
	for _, nic := range vmi.Spec.Domain.Devices.Interfaces {
		if nic.Tag != "" {
			found[domain.AliasPrefix+nic.Name] = nic.Tag
		}
	}
	for i := range vmi.Spec.Domain.Devices.Disks {
		if disk := &vmi.Spec.Domain.Devices.Disks[i]; disk.Tag != "" {
			found[domain.AliasPrefix+disk.Name] = disk.Tag
		}
	}
	return found
}

// Tagged lists the devices of a defined domain that the VMI's spec has given a tag, by
// which a guest finds them: where they are is libvirt's choice.
func Tagged(vmi *v1.VirtualMachineInstance, defined *libvirtxml.Domain) []Device {
	known := tags(vmi)
	if len(known) == 0 || defined.Devices == nil {
		return nil
	}
	var devices []Device
	add := func(device Device, alias *libvirtxml.DomainAlias, at *libvirtxml.DomainAddress) {
		if alias == nil || known[alias.Name] == "" || at == nil {
			return
		}
		device.Tags = []string{known[alias.Name]}
		device.Bus, device.Address = place(device.Bus, at)
		if device.Address != "" {
			devices = append(devices, device)
		}
	}
	for i := range defined.Devices.Interfaces {
		nic := &defined.Devices.Interfaces[i]
		device := Device{Type: DeviceNIC}
		if nic.MAC != nil {
			device.MAC = nic.MAC.Address
		}
		add(device, nic.Alias, nic.Address)
	}
	for i := range defined.Devices.Disks {
		disk := &defined.Devices.Disks[i]
		device := Device{Type: DeviceDisk, Serial: disk.Serial}
		if disk.Target != nil {
			device.Bus = disk.Target.Bus
		}
		add(device, disk.Alias, disk.Address)
	}
	return devices
}

// place is where a device on bus is, in the words of a configuration drive: a disk of a controller by that,
// its channel, target and unit.
func place(bus string, at *libvirtxml.DomainAddress) (string, string) {
	switch {
	case at.PCI != nil:
		return "pci", pciAddress(at.PCI)
	case at.Drive != nil:
		return bus, fmt.Sprintf("%d:%d:%d:%d", number(at.Drive.Controller), number(at.Drive.Bus), number(at.Drive.Target), number(at.Drive.Unit))
	case at.USB != nil:
		return bus, fmt.Sprintf("%d:%s", number(at.USB.Bus), at.USB.Port)
	}
	return bus, ""
}

// number is an address's part, 0 where it is left out.
func number(part *uint) uint {
	if part == nil {
		return 0
	}
	return *part
}

// pciAddress writes an address as Linux does: 0000:01:00.0.
func pciAddress(at *libvirtxml.DomainAddressPCI) string {
	return fmt.Sprintf("%04x:%02x:%02x.%x", number(at.Domain), number(at.Bus), number(at.Slot), number(at.Function))
}
