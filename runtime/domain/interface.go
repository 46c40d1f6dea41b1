package domain

import (
	"fmt"
	"net"

	v1 "kubevirt.io/api/core/v1"
	"libvirt.org/go/libvirtxml"

	"github.com/slipway-vm/slipway/runtime/protocol"
)

const modelVirtio = "virtio"

// interfaces connects the guest to the taps that the handler made: a device made
// elsewhere is used as it is, which needs no privilege.
func interfaces(in Input, domain *libvirtxml.Domain) error {
	taps := map[string]protocol.Interface{}
	for _, tap := range in.Interfaces {
		taps[tap.Name] = tap
	}
	for i := range in.VMI.Spec.Domain.Devices.Interfaces {
		spec := &in.VMI.Spec.Domain.Devices.Interfaces[i]
		if spec.State == v1.InterfaceStateAbsent {
			continue
		}
		tap, ok := taps[spec.Name]
		if !ok {
			return fmt.Errorf("interface %s has no tap device: virt-handler prepared none for it", spec.Name)
		}
		out, err := networkInterface(in.VMI, spec, tap)
		if err != nil {
			return err
		}
		domain.Devices.Interfaces = append(domain.Devices.Interfaces, *out)
	}
	return nil
}

func networkInterface(vmi *v1.VirtualMachineInstance, spec *v1.Interface, tap protocol.Interface) (*libvirtxml.DomainInterface, error) {
	address, err := pciAddress(spec.PciAddress)
	if err != nil {
		return nil, fmt.Errorf("interface %s: %w", spec.Name, err)
	}
	out := &libvirtxml.DomainInterface{
		Address: address,
		Source:  &libvirtxml.DomainInterfaceSource{Ethernet: &libvirtxml.DomainInterfaceSourceEthernet{}},
		Target:  &libvirtxml.DomainInterfaceTarget{Dev: tap.Tap, Managed: "no"},
		Model:   &libvirtxml.DomainInterfaceModel{Type: interfaceModel(vmi, spec)},
		Alias:   &libvirtxml.DomainAlias{Name: AliasPrefix + spec.Name},
	}
	if mac := macAddress(spec, tap); mac != "" {
		out.MAC = &libvirtxml.DomainInterfaceMAC{Address: mac}
	}
	if tap.MTU > 0 {
		out.MTU = &libvirtxml.DomainInterfaceMTU{Size: uint(tap.MTU)}
	}
	if tap.Queues > 1 && isVirtio(spec) {
		// No backend is named: libvirt takes vhost where the pod has it, else QEMU itself.
		out.Driver = &libvirtxml.DomainInterfaceDriver{Queues: uint(tap.Queues)}
	}
	if spec.State == v1.InterfaceStateLinkDown {
		out.Link = &libvirtxml.DomainInterfaceLink{State: "down"}
	}
	if spec.ACPIIndex > 0 {
		out.ACPI = &libvirtxml.DomainDeviceACPI{Index: uint(spec.ACPIIndex)}
	}
	if spec.BootOrder != nil {
		out.Boot = &libvirtxml.DomainDeviceBoot{Order: *spec.BootOrder}
	} else {
		out.ROM = &libvirtxml.DomainROM{Enabled: "no"} // the boot ROM is only for booting
	}
	return out, nil
}

// macAddress is the one asked for, in whatever way it is written, as libvirt writes it.
func macAddress(spec *v1.Interface, tap protocol.Interface) string {
	if spec.MacAddress == "" {
		return tap.MAC
	}
	if mac, err := net.ParseMAC(spec.MacAddress); err == nil {
		return mac.String()
	}
	return spec.MacAddress
}

func isVirtio(spec *v1.Interface) bool { return spec.Model == "" || spec.Model == modelVirtio }

func interfaceModel(vmi *v1.VirtualMachineInstance, spec *v1.Interface) string {
	if isVirtio(spec) {
		return virtioModel(vmi)
	}
	return spec.Model
}
