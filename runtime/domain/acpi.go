package domain

import (
	"path"

	v1 "kubevirt.io/api/core/v1"
	"libvirt.org/go/libvirtxml"
)

// ACPITable is a table of the firmware's that the VMI brings along.
type ACPITable struct {
	// Type is slic or msdm.
	Type string
	// Volume is the secret volume that it is in, File its key there.
	Volume, File string
}

// ACPITables are those that vmi names.
func ACPITables(vmi *v1.VirtualMachineInstance) []ACPITable {
	firmware := vmi.Spec.Domain.Firmware
	if firmware == nil || firmware.ACPI == nil {
		return nil
	}
	var tables []ACPITable
	for _, table := range []ACPITable{
		{Type: "slic", Volume: firmware.ACPI.SlicNameRef, File: "slic.bin"},
		{Type: "msdm", Volume: firmware.ACPI.MsdmNameRef, File: "msdm.bin"},
	} {
		if table.Volume != "" {
			tables = append(tables, table)
		}
	}
	return tables
}

// acpiTables adds the tables by which a system knows its licence.
func acpiTables(in Input, domain *libvirtxml.Domain) error {
	for _, table := range ACPITables(in.VMI) {
		if domain.OS.ACPI == nil {
			domain.OS.ACPI = &libvirtxml.DomainACPI{}
		}
		domain.OS.ACPI.Tables = append(domain.OS.ACPI.Tables, libvirtxml.DomainACPITable{
			Type: table.Type, Path: path.Join(in.SecretsDir, table.Volume, table.File),
		})
	}
	return nil
}
