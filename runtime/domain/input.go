package domain

import (
	"fmt"

	v1 "kubevirt.io/api/core/v1"
	"libvirt.org/go/libvirtxml"
)

func inputs(in Input, domain *libvirtxml.Domain) error {
	for _, spec := range in.VMI.Spec.Domain.Devices.Inputs {
		input := libvirtxml.DomainInput{Type: string(spec.Type), Bus: string(inputBus(spec))}
		if input.Type == "" {
			input.Type = string(v1.InputTypeTablet)
		}
		switch inputBus(spec) {
		case v1.InputBusVirtio, v1.InputBusUSB:
		default:
			return fmt.Errorf("input %s: bus %q is unknown; use usb or virtio", spec.Name, spec.Bus)
		}
		if spec.Name != "" {
			input.Alias = &libvirtxml.DomainAlias{Name: AliasPrefix + spec.Name}
		}
		domain.Devices.Inputs = append(domain.Devices.Inputs, input)
	}
	if autoTablet(in.VMI) {
		tablet := libvirtxml.DomainInput{Type: string(v1.InputTypeTablet), Bus: string(v1.InputBusUSB)}
		domain.Devices.Inputs = append(domain.Devices.Inputs, tablet)
	}
	return nil
}

func inputBus(spec v1.Input) v1.InputBus {
	if spec.Bus == "" {
		return v1.InputBusUSB
	}
	return spec.Bus
}

// autoTablet says whether the VMI wants the usual pointer and names no input itself.
func autoTablet(vmi *v1.VirtualMachineInstance) bool {
	devices := &vmi.Spec.Domain.Devices
	return requested(devices.AutoattachInputDevice) && hasGraphics(vmi) && len(devices.Inputs) == 0
}
