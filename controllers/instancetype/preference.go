package instancetype

import (
	"fmt"

	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"
	virtv1 "kubevirt.io/api/core/v1"
	"kubevirt.io/api/instancetype/v1beta1"
)

// applyPreference fills what the VM left unset with what the preference prefers.
func applyPreference(vmi *virtv1.VirtualMachineInstance, p *v1beta1.VirtualMachinePreferenceSpec) {
	spec := &vmi.Spec
	fillClock(spec, p.Clock)
	fillFeatures(spec, p.Features)
	fillFirmware(spec, p.Firmware)
	if p.Machine != nil && p.Machine.PreferredMachineType != "" && machineType(spec) == "" {
		spec.Domain.Machine = &virtv1.Machine{Type: p.Machine.PreferredMachineType}
	}
	if p.CPU != nil {
		fillCPUFeatures(spec, p.CPU.PreferredCPUFeatures)
	}
	if p.Devices != nil {
		fillDevices(&spec.Domain.Devices, p.Devices)
		fillDisks(spec.Domain.Devices.Disks, p.Devices)
		fillInterfaces(&spec.Domain.Devices, p.Devices)
	}
	if p.PreferredSubdomain != nil && spec.Subdomain == "" {
		spec.Subdomain = *p.PreferredSubdomain
	}
	if p.PreferredArchitecture != nil && spec.Architecture == "" {
		spec.Architecture = *p.PreferredArchitecture
	}
	fillPointer(&spec.TerminationGracePeriodSeconds, p.PreferredTerminationGracePeriodSeconds)
	fillPointer(&spec.Domain.LaunchSecurity, p.PreferredLaunchSecurity)
	vmi.Annotations = merged(p.Annotations, vmi.Annotations)
}

func machineType(spec *virtv1.VirtualMachineInstanceSpec) string {
	if spec.Domain.Machine == nil {
		return ""
	}
	return spec.Domain.Machine.Type
}

func fillClock(spec *virtv1.VirtualMachineInstanceSpec, p *v1beta1.ClockPreferences) {
	if p == nil {
		return
	}
	if spec.Domain.Clock == nil {
		spec.Domain.Clock = &virtv1.Clock{}
	}
	clock := spec.Domain.Clock
	if p.PreferredClockOffset != nil && clock.UTC == nil && clock.Timezone == nil {
		clock.ClockOffset = *p.PreferredClockOffset.DeepCopy()
	}
	if p.PreferredTimer != nil && clock.Timer == nil {
		clock.Timer = p.PreferredTimer.DeepCopy()
	}
}

func fillFeatures(spec *virtv1.VirtualMachineInstanceSpec, p *v1beta1.FeaturePreferences) {
	if p == nil {
		return
	}
	if spec.Domain.Features == nil {
		spec.Domain.Features = &virtv1.Features{}
	}
	features := spec.Domain.Features
	if p.PreferredAcpi != nil && features.ACPI.Enabled == nil {
		features.ACPI = *p.PreferredAcpi.DeepCopy()
	}
	fillPointer(&features.APIC, p.PreferredApic)
	fillPointer(&features.KVM, p.PreferredKvm)
	fillPointer(&features.Pvspinlock, p.PreferredPvspinlock)
	fillPointer(&features.SMM, p.PreferredSmm)
	if features.Hyperv == nil && p.PreferredHyperv != nil {
		features.Hyperv = p.PreferredHyperv.DeepCopy()
	}
}

func fillFirmware(spec *virtv1.VirtualMachineInstanceSpec, p *v1beta1.FirmwarePreferences) {
	if p == nil {
		return
	}
	if spec.Domain.Firmware == nil {
		spec.Domain.Firmware = &virtv1.Firmware{}
	}
	firmware := spec.Domain.Firmware
	if firmware.Bootloader != nil && (firmware.Bootloader.BIOS != nil || firmware.Bootloader.EFI != nil) {
		return
	}
	efi := p.PreferredEfi
	if efi == nil && ptr.Deref(p.DeprecatedPreferredUseEfi, false) {
		efi = &virtv1.EFI{SecureBoot: p.DeprecatedPreferredUseSecureBoot}
	}
	switch {
	case efi != nil:
		firmware.Bootloader = &virtv1.Bootloader{EFI: efi.DeepCopy()}
	case ptr.Deref(p.PreferredUseBios, false):
		firmware.Bootloader = &virtv1.Bootloader{BIOS: &virtv1.BIOS{UseSerial: p.PreferredUseBiosSerial}}
	}
}

// fillCPUFeatures adds the preferred features that the VM does not mention.
func fillCPUFeatures(spec *virtv1.VirtualMachineInstanceSpec, features []virtv1.CPUFeature) {
	if len(features) == 0 {
		return
	}
	if spec.Domain.CPU == nil {
		spec.Domain.CPU = &virtv1.CPU{}
	}
	own := map[string]bool{}
	for _, f := range spec.Domain.CPU.Features {
		own[f.Name] = true
	}
	for _, f := range features {
		if !own[f.Name] {
			spec.Domain.CPU.Features = append(spec.Domain.CPU.Features, f)
		}
	}
}

// unmet returns what the preference requires and the VM has too little of.
func unmet(spec *virtv1.VirtualMachineInstanceSpec, p *v1beta1.VirtualMachinePreferenceSpec, path *field.Path) field.ErrorList {
	required := p.Requirements
	if required == nil {
		return nil
	}
	var errs field.ErrorList
	if cpu := required.CPU; cpu != nil {
		if got := vcpus(spec.Domain.CPU); got < cpu.Guest {
			errs = append(errs, field.Invalid(path.Child("domain", "cpu"), got,
				fmt.Sprintf("insufficient CPU resources of %d vCPU provided, preference requires %d vCPU", got, cpu.Guest)))
		}
	}
	if memory := required.Memory; memory != nil {
		if got := spec.Domain.Memory; got == nil || got.Guest == nil || got.Guest.Cmp(memory.Guest) < 0 {
			errs = append(errs, field.Invalid(path.Child("domain", "memory", "guest"), guestText(got),
				fmt.Sprintf("insufficient Memory resources provided, preference requires %s", memory.Guest.String())))
		}
	}
	if arch := required.Architecture; arch != nil && spec.Architecture != "" && spec.Architecture != *arch {
		errs = append(errs, field.Invalid(path.Child("architecture"), spec.Architecture, "preference requires architecture "+*arch))
	}
	return errs
}

func vcpus(cpu *virtv1.CPU) uint32 {
	if cpu == nil {
		return 1
	}
	return max(cpu.Cores, 1) * max(cpu.Sockets, 1) * max(cpu.Threads, 1)
}

func guestText(memory *virtv1.Memory) string {
	if memory == nil || memory.Guest == nil {
		return ""
	}
	return memory.Guest.String()
}
