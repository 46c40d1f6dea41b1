package domain

import (
	"errors"
	"fmt"
	"strings"

	v1 "kubevirt.io/api/core/v1"
	"libvirt.org/go/libvirtxml"
)

const defaultMachine = "q35"

// Machine is the type of machine asked for, q35 by default.
func Machine(vmi *v1.VirtualMachineInstance) string {
	if machine := vmi.Spec.Domain.Machine; machine != nil && machine.Type != "" {
		return machine.Type
	}
	return defaultMachine
}

// knownMachine says whether this package's devices fit a type of machine.
func knownMachine(machine string) bool {
	return machine == defaultMachine || machine == "pc" ||
		strings.HasPrefix(machine, "pc-q35-") || strings.HasPrefix(machine, "pc-i440fx-")
}

func firmware(in Input, domain *libvirtxml.Domain) error {
	if machine := Machine(in.VMI); !knownMachine(machine) {
		return fmt.Errorf("spec.domain.machine.type %q is unknown; use q35, pc or a version of these", machine)
	}
	domain.OS = &libvirtxml.DomainOS{
		Type:   &libvirtxml.DomainOSType{Arch: "x86_64", Machine: Machine(in.VMI), Type: "hvm"},
		SMBios: &libvirtxml.DomainSMBios{Mode: "sysinfo"},
	}
	spec := in.VMI.Spec.Domain.Firmware
	if spec == nil {
		return nil
	}
	if err := kernelBoot(in, spec.KernelBoot, domain.OS); err != nil || spec.Bootloader == nil {
		return err
	}
	if bios := spec.Bootloader.BIOS; bios != nil {
		if requested(bios.UseSerial) {
			if !enabled(in.VMI.Spec.Domain.Devices.AutoattachSerialConsole) {
				return errors.New("spec.domain.firmware.bootloader.bios.useSerial needs a serial console: drop autoattachSerialConsole: false")
			}
			domain.OS.BIOS = &libvirtxml.DomainBIOS{UseSerial: "yes"}
		}
		return nil
	}
	if spec.Bootloader.EFI == nil {
		return nil
	}
	return efi(in, spec.Bootloader.EFI, domain.OS)
}

// efi selects UEFI images. Secure boot is on unless it is switched off, as the API
// defines, and needs the SMM that features adds.
func efi(in Input, spec *v1.EFI, os *libvirtxml.DomainOS) error {
	secure := enabled(spec.SecureBoot)
	images := in.Firmware.Plain
	if secure {
		images = in.Firmware.Secure
	}
	os.Loader = &libvirtxml.DomainLoader{Path: images.Code, Readonly: "yes", Secure: yesNo(secure), Type: "pflash"}
	nvram := NVRAM(in.VMI, in.StateDir)
	if nvram == "" {
		nvram = in.Firmware.NVRAM
	}
	os.NVRam = &libvirtxml.DomainNVRam{NVRam: nvram, Template: images.Vars}
	return nil
}

// secureBoot says whether the VMI boots with UEFI secure boot.
func secureBoot(vmi *v1.VirtualMachineInstance) bool {
	fw := vmi.Spec.Domain.Firmware
	return fw != nil && fw.Bootloader != nil && fw.Bootloader.EFI != nil && enabled(fw.Bootloader.EFI.SecureBoot)
}

// bootsEFI says whether the VMI boots with UEFI.
func bootsEFI(vmi *v1.VirtualMachineInstance) bool {
	fw := vmi.Spec.Domain.Firmware
	return fw != nil && fw.Bootloader != nil && fw.Bootloader.EFI != nil
}
