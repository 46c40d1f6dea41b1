package virtualmachineinstance

import (
	"fmt"

	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"
	virtv1 "kubevirt.io/api/core/v1"

	"github.com/slipway-vm/slipway/controllers/featuregate"
)

// behind finds what of spec, which is at path, is behind a gate, but for what before, which may be nil, had alike.
type behind func(spec, before *virtv1.VirtualMachineInstanceSpec, path *field.Path) []*field.Path

var gates = map[string]behind{
	featuregate.HostDisk:        hostDisks,
	featuregate.VSOCK:           sockets,
	featuregate.DownwardMetrics: metrics,
}

// Closed returns what is wrong with spec, which is at path, while gate is off: what is behind it, but
// for what before, which may be nil, had alike.
func Closed(gate string, spec, before *virtv1.VirtualMachineInstanceSpec, path *field.Path) field.ErrorList {
	find, known := gates[gate]
	if !known {
		return nil
	}
	var errs field.ErrorList
	for _, at := range find(spec, before, path) {
		errs = append(errs, field.Forbidden(at, fmt.Sprintf(
			"%s feature gate is not enabled; an administrator adds it to spec.configuration.developerConfiguration.featureGates of the KubeVirt object", gate)))
	}
	return errs
}

func sockets(spec, before *virtv1.VirtualMachineInstanceSpec, path *field.Path) []*field.Path {
	has := func(s *virtv1.VirtualMachineInstanceSpec) bool {
		return s != nil && ptr.Deref(s.Domain.Devices.AutoattachVSOCK, false)
	}
	if !has(spec) || has(before) {
		return nil
	}
	return []*field.Path{path.Child("domain", "devices", "autoattachVSOCK")}
}

func metrics(spec, before *virtv1.VirtualMachineInstanceSpec, path *field.Path) []*field.Path {
	var found []*field.Path
	if spec.Domain.Devices.DownwardMetrics != nil && (before == nil || before.Domain.Devices.DownwardMetrics == nil) {
		found = append(found, path.Child("domain", "devices", "downwardMetrics"))
	}
	had := map[string]bool{}
	if before != nil {
		for _, volume := range before.Volumes {
			had[volume.Name] = volume.DownwardMetrics != nil
		}
	}
	for i, volume := range spec.Volumes {
		if volume.DownwardMetrics != nil && !had[volume.Name] {
			found = append(found, path.Child("volumes").Index(i).Child("downwardMetrics"))
		}
	}
	return found
}
