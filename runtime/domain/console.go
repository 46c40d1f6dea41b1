package domain

import (
	v1 "kubevirt.io/api/core/v1"
	"libvirt.org/go/libvirtxml"
)

// console is the guest's first serial port, on a unix socket.
func console(in Input, domain *libvirtxml.Domain) error {
	if !enabled(in.VMI.Spec.Domain.Devices.AutoattachSerialConsole) {
		return nil
	}
	zero := uint(0)
	source := &libvirtxml.DomainChardevSource{UNIX: &libvirtxml.DomainChardevSourceUNIX{Mode: "bind", Path: in.Console.Socket}}
	serial := libvirtxml.DomainSerial{Source: source, Target: &libvirtxml.DomainSerialTarget{Port: &zero}}
	if LogsConsole(in.VMI, in.Options) && in.Console.Log != "" {
		serial.Log = &libvirtxml.DomainChardevLog{File: in.Console.Log, Append: "on"}
	}
	domain.Devices.Serials = []libvirtxml.DomainSerial{serial}
	domain.Devices.Consoles = []libvirtxml.DomainConsole{
		{Source: source, Target: &libvirtxml.DomainConsoleTarget{Type: "serial", Port: &zero}},
	}
	return nil
}

// LogsConsole says whether the output of the first serial port is kept: as the VMI says, and where it says nothing, as
// the options of all guests do, which may be nil.
func LogsConsole(vmi *v1.VirtualMachineInstance, options *v1.VirtualMachineOptions) bool {
	devices := &vmi.Spec.Domain.Devices
	if !enabled(devices.AutoattachSerialConsole) {
		return false
	}
	if devices.LogSerialConsole != nil {
		return *devices.LogSerialConsole
	}
	return options == nil || options.DisableSerialConsoleLog == nil
}

// AgentChannel is the name of the port of the guest's agent.
const AgentChannel = "org.qemu.guest_agent.0"

// agentChannel is where the guest's agent is spoken to.
func agentChannel(_ Input, domain *libvirtxml.Domain) error {
	domain.Devices.Channels = []libvirtxml.DomainChannel{{
		Source: &libvirtxml.DomainChardevSource{UNIX: &libvirtxml.DomainChardevSourceUNIX{}},
		Target: &libvirtxml.DomainChannelTarget{VirtIO: &libvirtxml.DomainChannelTargetVirtIO{Name: AgentChannel}},
	}}
	return nil
}
