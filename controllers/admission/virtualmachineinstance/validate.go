// Package virtualmachineinstance defaults and validates VirtualMachineInstances at
// admission. Validate is pure and serves the template of a VirtualMachine too.
package virtualmachineinstance

import (
	"fmt"
	"regexp"

	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"
	virtv1 "kubevirt.io/api/core/v1"

	"github.com/slipway-vm/slipway/controllers/virtualmachineinstance/defaults"
)

// Validate returns what is wrong with spec, which has its defaults; path is where it is.
func Validate(spec *virtv1.VirtualMachineInstanceSpec, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	for _, check := range []func(*virtv1.VirtualMachineInstanceSpec, *field.Path) field.ErrorList{
		identity, memory, cpu, firmware, disks, filesystems, volumes, bootOrder, interfaces, networks, aliases, inputs, panicDevices, clock, placement,
		kernelBoot, sound, ioThreads, lunVolumes, shared, downwardMetrics, probes, access,
		hugepages, dedicatedCPUs, numa, realtime, acpiTables, pciAddresses, hyperv, overheads,
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

// Allowed returns what of spec, which has its defaults and is at path, the cluster does not allow: a machine type that no pattern
// of it matches, and bridges.
func Allowed(spec *virtv1.VirtualMachineInstanceSpec, cluster defaults.Cluster, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	if cluster.NoBridge {
		errs = bridges(spec, path)
	}
	machine := spec.Domain.Machine
	if machine == nil || machine.Type == "" || cluster.Allows(machine.Type) {
		return errs
	}
	at := path.Child("domain", "machine", "type")
	return append(errs, field.Invalid(at, machine.Type, fmt.Sprintf("%s is not supported: %s (allowed values: %v)", at, machine.Type, cluster.Machines)))
}

func firmware(spec *virtv1.VirtualMachineInstanceSpec, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	domain := path.Child("domain")
	if machine := spec.Domain.Machine; machine != nil && machine.Type != "" && !defaults.ThereIs(machine.Type) {
		errs = append(errs, field.Invalid(domain.Child("machine", "type"), machine.Type, defaults.Machines))
	}
	fw := spec.Domain.Firmware
	if fw == nil {
		return errs
	}
	if fw.UUID != "" && !uuids.MatchString(string(fw.UUID)) {
		errs = append(errs, field.Invalid(domain.Child("firmware", "uuid"), fw.UUID, "must be a UUID such as 5d307ca9-b3ef-428c-8861-06e72d69f223"))
	}
	return append(errs, bootloader(spec, domain)...)
}

// bootloader checks what the guest boots with against the devices and features that it needs.
func bootloader(spec *virtv1.VirtualMachineInstanceSpec, domain *field.Path) field.ErrorList {
	boot, at := spec.Domain.Firmware.Bootloader, domain.Child("firmware", "bootloader")
	if boot == nil {
		return nil
	}
	var errs field.ErrorList
	if boot.BIOS != nil && boot.EFI != nil {
		errs = append(errs, field.Invalid(at, "bios and efi", "has both EFI and BIOS configured, but they are mutually exclusive."))
	}
	if boot.BIOS != nil && ptr.Deref(boot.BIOS.UseSerial, false) && !ptr.Deref(spec.Domain.Devices.AutoattachSerialConsole, true) {
		errs = append(errs, field.Invalid(at.Child("bios", "useSerial"), true, "needs a serial console; leave autoattachSerialConsole out"))
	}
	if boot.EFI == nil {
		return errs
	}
	if ptr.Deref(boot.EFI.SecureBoot, true) && smmOff(spec) {
		errs = append(errs, field.Invalid(at.Child("efi", "secureBoot"), true, "has EFI SecureBoot enabled. SecureBoot requires SMM, which is currently disabled."))
	}
	if features := spec.Domain.Features; features != nil && !ptr.Deref(features.ACPI.Enabled, true) {
		errs = append(errs, field.Invalid(domain.Child("features", "acpi", "enabled"), false, "EFI needs ACPI; leave the field out"))
	}
	return errs
}

var uuids = regexp.MustCompile(`^[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}$`)

func smmOff(spec *virtv1.VirtualMachineInstanceSpec) bool {
	features := spec.Domain.Features
	return features != nil && features.SMM != nil && features.SMM.Enabled != nil && !*features.SMM.Enabled
}
