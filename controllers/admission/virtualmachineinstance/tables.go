package virtualmachineinstance

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"
	virtv1 "kubevirt.io/api/core/v1"
)

// acpiTables checks that the tables that the firmware gets are in volumes that are Secrets.
func acpiTables(spec *virtv1.VirtualMachineInstanceSpec, path *field.Path) field.ErrorList {
	if spec.Domain.Firmware == nil || spec.Domain.Firmware.ACPI == nil {
		return nil
	}
	tables, at := spec.Domain.Firmware.ACPI, path.Child("domain", "firmware", "acpi")
	if tables.SlicNameRef == "" && tables.MsdmNameRef == "" {
		return field.ErrorList{field.Invalid(at, "{}", "ACPI was set but no SLIC nor MSDM volume reference was set")}
	}
	var errs field.ErrorList
	if features := spec.Domain.Features; features != nil && !ptr.Deref(features.ACPI.Enabled, true) {
		errs = append(errs, field.Invalid(path.Child("domain", "features", "acpi", "enabled"), false, "the tables of firmware.acpi need ACPI; leave the field out"))
	}
	for _, ref := range []struct{ name, volume string }{{"slicNameRef", tables.SlicNameRef}, {"msdmNameRef", tables.MsdmNameRef}} {
		if message := notSecret(spec, ref.volume); ref.volume != "" && message != "" {
			errs = append(errs, field.Invalid(at.Child(ref.name), ref.volume, fmt.Sprintf("%s %s", at, message)))
		}
	}
	return errs
}

// notSecret says why the volume called name is none that a table can be in; empty when it is one.
func notSecret(spec *virtv1.VirtualMachineInstanceSpec, name string) string {
	for _, volume := range spec.Volumes {
		if volume.Name != name {
			continue
		}
		if volume.Secret == nil {
			return "refers to Volume of unsupported type."
		}
		return ""
	}
	return "does not have a matching Volume."
}

// pciPlaces are domain, bus, slot and function on a PCI bus.
var pciPlaces = regexp.MustCompile(`^([0-9a-fA-F]{4}):([0-9a-fA-F]{2}):([0-9a-fA-F]{2})\.([0-7])$`)

// Slots of bus 0 that are not the machine's own, which are the root's and the chipset's; and the
// last bus: there is a port for each below it, and all of these are on bus 0.
const (
	firstSlot = 0x01
	lastSlot  = 0x1e
	lastBus   = 0x3f
)

// pciAddresses checks the places on the guest's PCI bus that devices ask for.
func pciAddresses(spec *virtv1.VirtualMachineInstanceSpec, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	devices := path.Child("domain", "devices")
	taken := map[string]bool{}
	check := func(address, what string, old bool, at *field.Path) {
		if address == "" {
			return
		}
		key := strings.ToLower(address)
		switch message := misplaced(address, old); {
		case message != "":
			errs = append(errs, field.Invalid(at, address, fmt.Sprintf("%s %s", what, message)))
		case taken[key]:
			errs = append(errs, field.Duplicate(at, address))
		}
		taken[key] = true
	}
	transitional := ptr.Deref(spec.Domain.Devices.UseVirtioTransitional, false)
	for i, disk := range spec.Domain.Devices.Disks {
		if disk.Disk == nil || disk.Disk.PciAddress == "" {
			continue
		}
		here := devices.Child("disks").Index(i).Child("disk", "pciAddress")
		what := "disk " + devices.Child("disks").Index(i).Child("name").String()
		if disk.Disk.Bus != virtv1.DiskBusVirtio {
			errs = append(errs, field.Invalid(here, disk.Disk.PciAddress, what+" - setting a PCI address is only possible with bus type virtio."))
			continue
		}
		check(disk.Disk.PciAddress, what, transitional, here)
	}
	for i, iface := range spec.Domain.Devices.Interfaces {
		here := devices.Child("interfaces").Index(i)
		old := iface.Model != "e1000e" // the only one besides virtio that is PCI Express
		if iface.Model == "" || iface.Model == virtv1.VirtIO {
			old = transitional
		}
		check(iface.PciAddress, "interface "+here.Child("name").String(), old, here.Child("pciAddress"))
	}
	return errs
}

// misplaced says why no device can be at address; empty when one can. An old one is of the PCI that
// has no ports.
func misplaced(address string, old bool) string {
	parts := pciPlaces.FindStringSubmatch(address)
	if parts == nil {
		return fmt.Sprintf("has malformed PCI address (%s).", address)
	}
	var numbers [4]uint64
	for i, part := range parts[1:] {
		numbers[i], _ = strconv.ParseUint(part, 16, 16) // the expression has seen to it
	}
	switch domain, bus, slot := numbers[0], numbers[1], numbers[2]; {
	case domain != 0:
		return "has a PCI address in another domain than 0000, which is the machine's only one"
	case bus == 0 && (slot < firstSlot || slot > lastSlot):
		return fmt.Sprintf("has a PCI address of the machine's own devices; on bus 00 use the slots %02x to %02x", firstSlot, lastSlot)
	case bus > lastBus:
		return fmt.Sprintf("has a PCI address on a bus that is too far off; use one up to %02x", lastBus)
	case bus != 0 && old:
		return "has a PCI address on a port of PCI Express, and is no such device; on bus 00 all have their place"
	case bus != 0 && slot != 0:
		return "has a PCI address that no port has; on a bus other than 00 use slot 00"
	}
	return ""
}
