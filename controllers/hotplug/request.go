package hotplug

import (
	"fmt"

	virtv1 "kubevirt.io/api/core/v1"
)

// Request is what a client asks of a machine's volumes: to add one or to remove one.
type Request struct {
	Add    *virtv1.AddVolumeOptions
	Remove *virtv1.RemoveVolumeOptions
}

// Apply changes spec as r asks, or says, in the field's words, why it cannot be.
func (r Request) Apply(spec *virtv1.VirtualMachineInstanceSpec) error {
	if r.Add != nil {
		return add(spec, r.Add)
	}
	return remove(spec, r.Remove.Name)
}

func add(spec *virtv1.VirtualMachineInstanceSpec, options *virtv1.AddVolumeOptions) error {
	volume := virtv1.Volume{Name: options.Name, VolumeSource: virtv1.VolumeSource{
		DataVolume: options.VolumeSource.DataVolume, PersistentVolumeClaim: options.VolumeSource.PersistentVolumeClaim,
	}}
	for _, other := range spec.Volumes {
		if other.Name == options.Name {
			return fmt.Errorf("Unable to add volume [%s] because volume with that name already exists", options.Name) //nolint:staticcheck,revive // the field's own words
		}
		if source := Source(volume); Source(other) == source {
			return fmt.Errorf("Unable to add volume source [%s] because it already exists", source) //nolint:staticcheck,revive // as above
		}
	}
	Add(spec, options.Disk, volume)
	return nil
}

func remove(spec *virtv1.VirtualMachineInstanceSpec, name string) error {
	for _, volume := range spec.Volumes {
		if volume.Name != name && Source(volume) != name {
			continue
		}
		if !Volume(volume) {
			return fmt.Errorf("Unable to remove volume [%s] because it is not hotpluggable", volume.Name) //nolint:staticcheck,revive // the field's own words
		}
		Remove(spec, volume.Name)
		return nil
	}
	return fmt.Errorf("Unable to remove volume [%s] because it does not exist", name) //nolint:staticcheck,revive // as above
}
