// Package memorydump says how big a claim must be for a dump of a guest's memory: virt-api, which
// checks claims, and virtctl, which makes them, say the same.
package memorydump

import (
	"math"

	virtv1 "kubevirt.io/api/core/v1"
)

// besides is what a dump holds besides the guest's memory, in bytes, as in the field: its headers,
// the memory of the screen, firmware.
const besides = 100 << 20

// DefaultOverhead is the part of a claim that its file system is taken to need where nothing else
// is known, as in the field.
const DefaultOverhead = 0.055

// Size is how many bytes a dump of the memory of vmi's guest takes at the most.
func Size(vmi *virtv1.VirtualMachineInstance) int64 {
	return guestMemory(vmi) + besides
}

// ClaimSize is the size in bytes of a claim for the dump, on a file system that needs the part
// overhead of it.
func ClaimSize(vmi *virtv1.VirtualMachineInstance, overhead float64) int64 {
	return int64(math.Ceil(float64(Size(vmi)) * (1 + overhead)))
}

// guestMemory is what the guest has, or was offered while it ran.
func guestMemory(vmi *virtv1.VirtualMachineInstance) int64 {
	domain, status := &vmi.Spec.Domain, vmi.Status.Memory
	var bytes int64
	switch {
	case domain.Memory != nil && domain.Memory.Guest != nil:
		bytes = domain.Memory.Guest.Value()
	case !domain.Resources.Requests.Memory().IsZero():
		bytes = domain.Resources.Requests.Memory().Value()
	default:
		bytes = domain.Resources.Limits.Memory().Value()
	}
	if status != nil && status.GuestRequested != nil {
		bytes = max(bytes, status.GuestRequested.Value())
	}
	return bytes
}
