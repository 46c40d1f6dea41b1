package domain

import "libvirt.org/go/libvirtxml"

// balloonPeriod is how often, in seconds, the guest's driver tells of the guest's memory,
// which metrics show.
const balloonPeriod = 10

// balloon lets the guest hand pages that it freed back to the node.
func balloon(in Input, domain *libvirtxml.Domain) error {
	if !enabled(in.VMI.Spec.Domain.Devices.AutoattachMemBalloon) {
		domain.Devices.MemBalloon = &libvirtxml.DomainMemBalloon{Model: "none"}
		return nil
	}
	domain.Devices.MemBalloon = &libvirtxml.DomainMemBalloon{Model: virtioModel(in.VMI), FreePageReporting: "on", Stats: &libvirtxml.DomainMemBalloonStats{Period: balloonPeriod}}
	return nil
}
