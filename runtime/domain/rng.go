package domain

import "libvirt.org/go/libvirtxml"

func rng(in Input, domain *libvirtxml.Domain) error {
	if in.VMI.Spec.Domain.Devices.Rng == nil {
		return nil
	}
	domain.Devices.RNGs = []libvirtxml.DomainRNG{{
		Model:   virtioModel(in.VMI),
		Backend: &libvirtxml.DomainRNGBackend{Random: &libvirtxml.DomainRNGBackendRandom{Device: "/dev/urandom"}},
	}}
	return nil
}
