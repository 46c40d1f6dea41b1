package domain

import (
	v1 "kubevirt.io/api/core/v1"
	"libvirt.org/go/libvirtxml"
)

// metricsPortName is the port that vhostmd's readers look for: /dev/virtio-ports/org.github.vhostmd.1 in the guest.
const metricsPortName = "org.github.vhostmd.1"

// TellsMetrics says whether the guest can ask for metrics of its node at a port.
func TellsMetrics(vmi *v1.VirtualMachineInstance) bool {
	return vmi.Spec.Domain.Devices.DownwardMetrics != nil
}

// metricsPort is where the guest asks for metrics of its node and of itself.
func metricsPort(in Input, domain *libvirtxml.Domain) error {
	if !TellsMetrics(in.VMI) {
		return nil
	}
	domain.Devices.Channels = append(domain.Devices.Channels, libvirtxml.DomainChannel{
		Source: &libvirtxml.DomainChardevSource{UNIX: &libvirtxml.DomainChardevSourceUNIX{Mode: "bind", Path: in.MetricsSocket}},
		Target: &libvirtxml.DomainChannelTarget{VirtIO: &libvirtxml.DomainChannelTargetVirtIO{Name: metricsPortName}},
	})
	return nil
}
