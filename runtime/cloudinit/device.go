package cloudinit

import (
	"fmt"
	"slices"

	v1 "kubevirt.io/api/core/v1"
	"libvirt.org/go/libvirtxml"

	"github.com/slipway-vm/slipway/runtime/domain"
)

// DeviceNIC is the type of a network interface.
const DeviceNIC = "nic"

// Device tells a guest where a device is that the user has tagged.
type Device struct {
	Type    string   `json:"type"`
	Bus     string   `json:"bus"`
	Address string   `json:"address"`
	MAC     string   `json:"mac,omitempty"`
	Tags    []string `json:"tags"`
}

// TellsDevices says whether a configuration drive of vmi tells of tagged devices.
func TellsDevices(vmi *v1.VirtualMachineInstance) bool {
	tagged := func(nic v1.Interface) bool { return nic.Tag != "" }
	drive := func(volume v1.Volume) bool { return volume.CloudInitConfigDrive != nil }
	return slices.ContainsFunc(vmi.Spec.Domain.Devices.Interfaces, tagged) && slices.ContainsFunc(vmi.Spec.Volumes, drive)
}

// Tagged lists the devices of a defined domain that the VMI's spec has given a tag, by
// which a guest finds them: where they are is libvirt's choice.
func Tagged(vmi *v1.VirtualMachineInstance, defined *libvirtxml.Domain) []Device {
	tags := map[string]string{}
	for i := range vmi.Spec.Domain.Devices.Interfaces {
		if nic := &vmi.Spec.Domain.Devices.Interfaces[i]; nic.Tag != "" {
			tags[domain.AliasPrefix+nic.Name] = nic.Tag
		}
	}
	if len(tags) == 0 || defined.Devices == nil {
		return nil
	}
	var devices []Device
	for i := range defined.Devices.Interfaces {
		nic := &defined.Devices.Interfaces[i]
		if nic.Alias == nil || tags[nic.Alias.Name] == "" || nic.Address == nil || nic.Address.PCI == nil {
			continue
		}
		device := Device{Type: DeviceNIC, Bus: "pci", Address: pciAddress(nic.Address.PCI), Tags: []string{tags[nic.Alias.Name]}}
		if nic.MAC != nil {
			device.MAC = nic.MAC.Address
		}
		devices = append(devices, device)
	}
	return devices
}

// pciAddress writes an address as Linux does: 0000:01:00.0.
func pciAddress(at *libvirtxml.DomainAddressPCI) string {
	part := func(n *uint) uint {
		if n == nil {
			return 0
		}
		return *n
	}
	return fmt.Sprintf("%04x:%02x:%02x.%x", part(at.Domain), part(at.Bus), part(at.Slot), part(at.Function))
}
