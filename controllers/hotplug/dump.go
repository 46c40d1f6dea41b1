package hotplug

import (
	"slices"

	virtv1 "kubevirt.io/api/core/v1"
)

// A volume for a dump of the guest's memory is called after its claim, as in the field.

// HasDump says whether spec has the volume to which memory is dumped on claim.
func HasDump(spec *virtv1.VirtualMachineInstanceSpec, claim string) bool {
	return slices.ContainsFunc(spec.Volumes, func(volume virtv1.Volume) bool { return volume.MemoryDump != nil && volume.Name == claim })
}

// AddDump gives spec the volume to which memory is dumped on claim.
func AddDump(spec *virtv1.VirtualMachineInstanceSpec, claim string) {
	source := &virtv1.MemoryDumpVolumeSource{}
	source.ClaimName, source.Hotpluggable = claim, true
	spec.Volumes = append(spec.Volumes, virtv1.Volume{Name: claim, VolumeSource: virtv1.VolumeSource{MemoryDump: source}})
}

// RemoveDump takes it from spec.
func RemoveDump(spec *virtv1.VirtualMachineInstanceSpec, claim string) {
	spec.Volumes = slices.DeleteFunc(spec.Volumes, func(volume virtv1.Volume) bool { return volume.MemoryDump != nil && volume.Name == claim })
}

// WithoutDumps returns spec without all such volumes: what a VM has of them says which claim
// belongs to it, and does not make a dump of each run.
func WithoutDumps(spec *virtv1.VirtualMachineInstanceSpec) *virtv1.VirtualMachineInstanceSpec {
	out := spec.DeepCopy()
	out.Volumes = slices.DeleteFunc(out.Volumes, func(volume virtv1.Volume) bool { return volume.MemoryDump != nil })
	return out
}
