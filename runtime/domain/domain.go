// Package domain turns a VirtualMachineInstance and the facts of its launcher pod
// into the libvirt domain that runs it. It is pure: no client, no clock, no files;
// a file per device. Whatever the VMI asks for that is not built here is an error
// naming the field, so nothing is dropped on the way to QEMU.
package domain

import (
	"fmt"
	"time"

	v1 "kubevirt.io/api/core/v1"
	"libvirt.org/go/libvirtxml"

	"github.com/slipway-vm/slipway/runtime/protocol"
)

// Input is all that a domain is built from.
type Input struct {
	// VMI is the instance, defaulted and admitted.
	VMI *v1.VirtualMachineInstance
	// KVM selects hardware virtualization; false is QEMU's own emulation (TCG).
	KVM bool
	// Disks are the prepared images by name of their volume.
	Disks map[string]Disk
	// Interfaces are the taps that the handler made, in any order.
	Interfaces []protocol.Interface
	// SMBIOS is what the KubeVirt object says of who made the machine; nil, and what is empty in it, are the defaults.
	SMBIOS *v1.SMBiosConfiguration
	// BalloonPeriod is how often, in seconds, the guest tells of its memory; 0 for never, nil for the default.
	BalloonPeriod *uint32
	// Options are what the KubeVirt object says of all guests; nil for nothing.
	Options *v1.VirtualMachineOptions
	// Console is where the guest's first serial port goes.
	Console Console
	// VNCSocket is the unix socket of the guest's screen.
	VNCSocket string
	// USBSockets begins the names of the unix sockets of the guest's slots for USB devices of clients.
	USBSockets string
	// FilesystemSockets begins the names of the unix sockets of what serves the guest's filesystems: see FilesystemSocket.
	FilesystemSockets string
	// MetricsSocket is the unix socket of the port where the guest asks for metrics.
	MetricsSocket string
	// Firmware names the UEFI images of the launcher image.
	Firmware Firmware
	// Kernel are the files of the VMI's kernel boot.
	Kernel Kernel
	// CPUs are the processors that the pod has for itself, for a VMI with dedicated ones.
	CPUs []HostCPU
	// SecretsDir has a folder for each volume that is a Secret.
	SecretsDir string
	// Now tells by how much a VMI's time zone differs from UTC.
	Now time.Time
	// StateDir is the folder of what outlives the pod, for a VMI that keeps such state.
	StateDir string
}

// Emulator is QEMU's path in the launcher image.
const Emulator = "/usr/bin/qemu-system-x86_64"

// Console are the paths behind the guest's first serial port.
type Console struct {
	// Socket is the unix socket that QEMU listens on for `virtctl console`.
	Socket string
	// Log is the file or pipe that gets a copy of all output; empty for none.
	Log string
}

// pair of UEFI code and template of variables.
type firmwarePair struct{ Code, Vars string }

// Firmware are UEFI images. Vars are templates; NVRAM is this guest's own copy.
type Firmware struct {
	// Plain starts any boot loader, Secure only signed ones.
	Plain, Secure firmwarePair
	// NVRAM is the file that libvirt makes from Vars.
	NVRAM string
}

// DebianFirmware are the paths of Debian's package ovmf, with nvram as the guest's copy.
func DebianFirmware(nvram string) Firmware {
	const dir = "/usr/share/OVMF/"
	return Firmware{
		Plain:  firmwarePair{Code: dir + "OVMF_CODE_4M.fd", Vars: dir + "OVMF_VARS_4M.fd"},
		Secure: firmwarePair{Code: dir + "OVMF_CODE_4M.ms.fd", Vars: dir + "OVMF_VARS_4M.ms.fd"},
		NVRAM:  nvram,
	}
}

// part adds one facet of the VMI to the domain.
type part func(Input, *libvirtxml.Domain) error

// parts in the order in which a domain is read.
var parts = []part{
	identity, memory, hugepages, sharedMemory, cpu, growth, firmware, acpiTables, features, clock, lifecycle,
	controllers, disks, filesystems, pinning, interfaces, console, graphics, inputs, usbSlots,
	agentChannel, metricsPort, vsock, rng, balloon, watchdog, panicDevices, tpm, sound, ports,
}

// Build returns the domain of in.VMI.
func Build(in Input) (*libvirtxml.Domain, error) {
	if err := refuseUnbuilt(in.VMI); err != nil {
		return nil, err
	}
	domain := &libvirtxml.Domain{Type: "qemu", Devices: &libvirtxml.DomainDeviceList{Emulator: Emulator}}
	if in.KVM {
		domain.Type = "kvm"
	}
	for _, add := range parts {
		if err := add(in, domain); err != nil {
			return nil, fmt.Errorf("building the domain of %s/%s: %w", in.VMI.Namespace, in.VMI.Name, err)
		}
	}
	return domain, nil
}

// lifecycle says what libvirt does when the guest stops by itself. Starting a VM
// again is for its controller, so every end but a reboot ends the domain.
func lifecycle(in Input, domain *libvirtxml.Domain) error {
	domain.OnPoweroff = "destroy"
	domain.OnReboot = "restart"
	domain.OnCrash = "destroy"
	if policy := in.VMI.Spec.Domain.RebootPolicy; policy != nil && *policy == v1.RebootPolicyTerminate {
		domain.OnReboot = "destroy"
	}
	return nil
}

// enabled reads an optional switch that is on when absent, as the API has it.
func enabled(value *bool) bool { return value == nil || *value }

// requested reads an optional switch that is off when absent.
func requested(value *bool) bool { return value != nil && *value }

// onOff is libvirt's word for a switch.
func onOff(on bool) string {
	if on {
		return "on"
	}
	return "off"
}

// yesNo is libvirt's other word for a switch.
func yesNo(yes bool) string {
	if yes {
		return "yes"
	}
	return "no"
}

// virtioModel is the model of virtio devices: modern only, unless the guest is too
// old for that (spec.domain.devices.useVirtioTransitional).
func virtioModel(vmi *v1.VirtualMachineInstance) string {
	if requested(vmi.Spec.Domain.Devices.UseVirtioTransitional) {
		return "virtio-transitional"
	}
	return "virtio-non-transitional"
}
