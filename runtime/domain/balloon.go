package domain

import (
	"k8s.io/utils/ptr"
	v1 "kubevirt.io/api/core/v1"
	"libvirt.org/go/libvirtxml"

	"github.com/slipway-vm/slipway/internal/dedicated"
)

// balloonPeriod is how often, in seconds, the guest's driver tells of the guest's memory,
// which metrics show, when nobody says how often.
const balloonPeriod = 10

// balloon lets the guest hand pages that it freed back to the node.
func balloon(in Input, domain *libvirtxml.Domain) error {
	if !enabled(in.VMI.Spec.Domain.Devices.AutoattachMemBalloon) {
		domain.Devices.MemBalloon = &libvirtxml.DomainMemBalloon{Model: "none"}
		return nil
	}
	domain.Devices.MemBalloon = &libvirtxml.DomainMemBalloon{Model: virtioModel(in.VMI), FreePageReporting: onOff(reportsFreePages(in))}
	if period := ptr.Deref(in.BalloonPeriod, balloonPeriod); period > 0 {
		domain.Devices.MemBalloon.Stats = &libvirtxml.DomainMemBalloonStats{Period: uint(period)}
	}
	return nil
}

// reportsFreePages says whether the guest tells the node of pages that it freed.
func reportsFreePages(in Input) bool {
	if in.Options != nil && in.Options.DisableFreePageReporting != nil {
		return false
	}
	return !ownsMemory(in.VMI) && in.VMI.Annotations[v1.FreePageReportingDisabledAnnotation] != "true"
}

// ownsMemory says whether the guest keeps the memory that it frees: the node has no use for its
// huge pages, and a guest that was given processors for itself is not to wait for its memory.
func ownsMemory(vmi *v1.VirtualMachineInstance) bool {
	memory := vmi.Spec.Domain.Memory
	return memory != nil && memory.Hugepages != nil || dedicated.Asked(vmi)
}
