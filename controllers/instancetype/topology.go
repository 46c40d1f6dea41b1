package instancetype

import (
	"k8s.io/utils/ptr"
	"kubevirt.io/api/instancetype/v1beta1"
)

// defaultSpread is how many cores share a socket, or threads a core, where a preference
// asks to spread and names no ratio.
const defaultSpread = 2

// topology divides guest virtual CPUs into sockets, cores and threads as preference
// wishes; sockets without a wish, as the field does.
func topology(guest uint32, preference *v1beta1.VirtualMachinePreferenceSpec) (sockets, cores, threads uint32) {
	switch preferred(preference) {
	case v1beta1.DeprecatedPreferCores, v1beta1.Cores:
		return 1, guest, 1
	case v1beta1.DeprecatedPreferThreads, v1beta1.Threads:
		return 1, 1, guest
	case v1beta1.DeprecatedPreferSpread, v1beta1.Spread:
		return spread(guest, preference)
	}
	return guest, 1, 1
}

func preferred(preference *v1beta1.VirtualMachinePreferenceSpec) v1beta1.PreferredCPUTopology {
	if preference == nil || preference.CPU == nil {
		return v1beta1.Sockets
	}
	return ptr.Deref(preference.CPU.PreferredCPUTopology, v1beta1.Sockets)
}

// spread divides guest by the ratio; where it does not divide evenly the rest of the
// levels stay one, so that the guest always has as many virtual CPUs as asked for.
func spread(guest uint32, preference *v1beta1.VirtualMachinePreferenceSpec) (sockets, cores, threads uint32) {
	ratio := uint32(defaultSpread)
	across := v1beta1.SpreadAcrossSocketsCores
	if preference.PreferSpreadSocketToCoreRatio > 0 {
		ratio = preference.PreferSpreadSocketToCoreRatio
	}
	if options := preference.CPU.SpreadOptions; options != nil {
		ratio = max(ptr.Deref(options.Ratio, ratio), 1)
		across = ptr.Deref(options.Across, across)
	}
	if guest < ratio || guest%ratio != 0 {
		return guest, 1, 1
	}
	switch across {
	case v1beta1.SpreadAcrossCoresThreads:
		return 1, guest / ratio, ratio
	case v1beta1.SpreadAcrossSocketsCoresThreads:
		if guest%(ratio*2) == 0 {
			return guest / (ratio * 2), ratio, 2
		}
	}
	return guest / ratio, ratio, 1
}
