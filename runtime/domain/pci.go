package domain

import (
	"fmt"
	"regexp"
	"strconv"

	"libvirt.org/go/libvirtxml"
)

// pciAddresses are domain, bus, slot and function of a place on the PCI bus.
var pciAddresses = regexp.MustCompile(`^([0-9a-fA-F]{4}):([0-9a-fA-F]{2}):([0-9a-fA-F]{2})\.([0-7])$`)

// pciAddress is the place on the guest's PCI bus that a device asks for; nil for none.
func pciAddress(text string) (*libvirtxml.DomainAddress, error) {
	if text == "" {
		return nil, nil
	}
	parts := pciAddresses.FindStringSubmatch(text)
	if parts == nil {
		return nil, fmt.Errorf("pciAddress %q is none; write it like 0000:03:00.0", text)
	}
	var numbers [4]uint
	for i, part := range parts[1:] {
		number, err := strconv.ParseUint(part, 16, 16)
		if err != nil {
			return nil, fmt.Errorf("reading pciAddress %q: %w", text, err)
		}
		numbers[i] = uint(number)
	}
	return &libvirtxml.DomainAddress{PCI: &libvirtxml.DomainAddressPCI{
		Domain: &numbers[0], Bus: &numbers[1], Slot: &numbers[2], Function: &numbers[3],
	}}, nil
}
