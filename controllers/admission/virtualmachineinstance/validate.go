// Package virtualmachineinstance defaults and validates VirtualMachineInstances at
// admission. Validate is pure and serves the template of a VirtualMachine too.
package virtualmachineinstance

import (
	"regexp"

	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	virtv1 "kubevirt.io/api/core/v1"
)

// Validate returns what is wrong with spec, which has its defaults; path is where it is.
func Validate(spec *virtv1.VirtualMachineInstanceSpec, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	for _, check := range []func(*virtv1.VirtualMachineInstanceSpec, *field.Path) field.ErrorList{
		identity, memory, cpu, firmware, disks, volumes, bootOrder, interfaces, networks, inputs, panicDevices, placement,
	} {
		errs = append(errs, check(spec, path)...)
	}
	return errs
}

// identity checks what the guest is called.
func identity(spec *virtv1.VirtualMachineInstanceSpec, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	for _, name := range []struct{ field, value string }{{"hostname", spec.Hostname}, {"subdomain", spec.Subdomain}} {
		if name.value == "" {
			continue
		}
		for _, message := range validation.IsDNS1123Label(name.value) {
			errs = append(errs, field.Invalid(path.Child(name.field), name.value, message))
		}
	}
	if grace := spec.TerminationGracePeriodSeconds; grace != nil && *grace < 0 {
		errs = append(errs, field.Invalid(path.Child("terminationGracePeriodSeconds"), *grace, "must be greater than or equal to 0"))
	}
	return errs
}

// placement checks what the API server would refuse of the launcher pod much later.
func placement(spec *virtv1.VirtualMachineInstanceSpec, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	for key, value := range spec.NodeSelector {
		at := path.Child("nodeSelector").Key(key)
		for _, message := range append(validation.IsQualifiedName(key), validation.IsValidLabelValue(value)...) {
			errs = append(errs, field.Invalid(at, value, message))
		}
	}
	return errs
}

// machineTypes are the machine types that the launcher's QEMU has and the domain is built for.
var machineTypes = regexp.MustCompile(`^(q35|pc-q35-[0-9a-z.-]+)$`)

func firmware(spec *virtv1.VirtualMachineInstanceSpec, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	domain := path.Child("domain")
	if machine := spec.Domain.Machine; machine != nil && machine.Type != "" && !machineTypes.MatchString(machine.Type) {
		errs = append(errs, field.Invalid(domain.Child("machine", "type"), machine.Type, "machine type is not supported: use q35, or pc-q35-<version>"))
	}
	fw := spec.Domain.Firmware
	if fw == nil {
		return errs
	}
	if fw.UUID != "" && !uuids.MatchString(string(fw.UUID)) {
		errs = append(errs, field.Invalid(domain.Child("firmware", "uuid"), fw.UUID, "must be a UUID such as 5d307ca9-b3ef-428c-8861-06e72d69f223"))
	}
	boot := fw.Bootloader
	if boot == nil {
		return errs
	}
	if boot.BIOS != nil && boot.EFI != nil {
		errs = append(errs, field.Invalid(domain.Child("firmware", "bootloader"), "bios and efi", "has both EFI and BIOS configured, but they are mutually exclusive."))
	}
	if efi := boot.EFI; efi != nil && (efi.SecureBoot == nil || *efi.SecureBoot) && smmOff(spec) {
		errs = append(errs, field.Invalid(domain.Child("firmware", "bootloader", "efi", "secureBoot"), true, "has EFI SecureBoot enabled. SecureBoot requires SMM, which is currently disabled."))
	}
	return errs
}

var uuids = regexp.MustCompile(`^[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}$`)

func smmOff(spec *virtv1.VirtualMachineInstanceSpec) bool {
	features := spec.Domain.Features
	return features != nil && features.SMM != nil && features.SMM.Enabled != nil && !*features.SMM.Enabled
}

func inputs(spec *virtv1.VirtualMachineInstanceSpec, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	for i, input := range spec.Domain.Devices.Inputs {
		at := path.Child("domain", "devices", "inputs").Index(i)
		if input.Bus != virtv1.InputBusVirtio && input.Bus != virtv1.InputBusUSB {
			errs = append(errs, field.Invalid(at.Child("bus"), input.Bus, "Input device can have only virtio or usb bus."))
		}
		if input.Type != virtv1.InputTypeTablet && input.Type != virtv1.InputTypeKeyboard {
			errs = append(errs, field.Invalid(at.Child("type"), input.Type, "Input device can have only tablet or keyboard type."))
		}
	}
	return errs
}

// panicDevices checks that there is one of each model; isa is what a device without one is.
func panicDevices(spec *virtv1.VirtualMachineInstanceSpec, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	seen := map[virtv1.PanicDeviceModel]bool{}
	for i, device := range spec.Domain.Devices.PanicDevices {
		model := virtv1.Isa
		if device.Model != nil {
			model = *device.Model
		}
		if seen[model] {
			errs = append(errs, field.Duplicate(path.Child("domain", "devices", "panicDevices").Index(i).Child("model"), model))
		}
		seen[model] = true
	}
	return errs
}
