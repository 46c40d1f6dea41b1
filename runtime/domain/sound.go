package domain

import "libvirt.org/go/libvirtxml"

// defaultSound is the model of a sound device that names none.
const defaultSound = "ich9"

// sound adds the sound device. Nothing of it leaves the pod: there is no device of the
// node behind it.
func sound(in Input, domain *libvirtxml.Domain) error {
	spec := in.VMI.Spec.Domain.Devices.Sound
	if spec == nil {
		return nil
	}
	model := spec.Model
	if model == "" {
		model = defaultSound
	}
	domain.Devices.Sounds = []libvirtxml.DomainSound{{Model: model, Alias: &libvirtxml.DomainAlias{Name: AliasPrefix + spec.Name}}}
	return nil
}
