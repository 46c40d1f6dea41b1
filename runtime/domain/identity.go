package domain

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"slices"

	"github.com/google/uuid"
	v1 "kubevirt.io/api/core/v1"
	"libvirt.org/go/libvirtxml"
)

// maxName keeps names of libvirt's files (name plus suffix) under the 255 bytes that
// file systems allow.
const maxName = 200

// firmwareSpace is the namespace of the UUIDs that KubeVirt derives from names; a VM
// that moves from there keeps its SMBIOS UUID, on which licences depend.
var firmwareSpace = uuid.MustParse("6a1a24a1-4061-4607-8bf4-a3963d0c5895")

// Name is the libvirt name of the VMI's domain: namespace and name, shortened by a
// hash where they are too long for a file name.
func Name(vmi *v1.VirtualMachineInstance) string {
	return fileName(vmi.Namespace + "_" + vmi.Name)
}

func fileName(name string) string {
	if len(name) <= maxName {
		return name
	}
	sum := sha256.Sum256([]byte(name))
	return name[:maxName-17] + "_" + hex.EncodeToString(sum[:8])
}

// UUID is spec.domain.firmware.uuid, or one that is always the same for the VMI's name.
func UUID(vmi *v1.VirtualMachineInstance) string {
	if fw := vmi.Spec.Domain.Firmware; fw != nil && fw.UUID != "" {
		return string(fw.UUID)
	}
	return uuid.NewSHA1(firmwareSpace, []byte(vmi.Name)).String()
}

// identity names the domain and says the same to the guest through SMBIOS.
func identity(in Input, domain *libvirtxml.Domain) error {
	domain.Name = Name(in.VMI)
	domain.UUID = UUID(in.VMI)
	smbios := &libvirtxml.DomainSysInfoSMBIOS{System: systemInfo(in, domain.UUID)}
	if chassis := in.VMI.Spec.Domain.Chassis; chassis != nil {
		if info := chassisInfo(chassis); len(info.Entry) > 0 { // libvirt takes none that says nothing
			smbios.Chassis = info
		}
	}
	domain.SysInfo = []libvirtxml.DomainSysInfo{{SMBIOS: smbios}}
	return nil
}

// What guests' tools look for where the KubeVirt object says nothing else.
const (
	defaultMaker   = "KubeVirt"
	defaultProduct = "None"
	defaultFamily  = "KubeVirt"
)

// systemInfo says who made the machine, as the KubeVirt object has it, and which one it is.
func systemInfo(in Input, uuid string) *libvirtxml.DomainSysInfoSystem {
	said := v1.SMBiosConfiguration{}
	if in.SMBIOS != nil {
		said = *in.SMBIOS
	}
	serial := ""
	if fw := in.VMI.Spec.Domain.Firmware; fw != nil {
		serial = fw.Serial
	}
	return &libvirtxml.DomainSysInfoSystem{Entry: filled([]libvirtxml.DomainSysInfoEntry{
		{Name: "manufacturer", Value: cmp.Or(said.Manufacturer, defaultMaker)},
		{Name: "product", Value: cmp.Or(said.Product, defaultProduct)},
		{Name: "version", Value: said.Version},
		{Name: "uuid", Value: uuid},
		{Name: "sku", Value: said.Sku},
		{Name: "family", Value: cmp.Or(said.Family, defaultFamily)},
		{Name: "serial", Value: serial},
	})}
}

func chassisInfo(chassis *v1.Chassis) *libvirtxml.DomainSysInfoChassis {
	return &libvirtxml.DomainSysInfoChassis{Entry: filled([]libvirtxml.DomainSysInfoEntry{
		{Name: "manufacturer", Value: chassis.Manufacturer},
		{Name: "version", Value: chassis.Version},
		{Name: "serial", Value: chassis.Serial},
		{Name: "asset", Value: chassis.Asset},
		{Name: "sku", Value: chassis.Sku},
	})}
}

// filled are those of entries that say something.
func filled(entries []libvirtxml.DomainSysInfoEntry) []libvirtxml.DomainSysInfoEntry {
	return slices.DeleteFunc(entries, func(entry libvirtxml.DomainSysInfoEntry) bool { return entry.Value == "" })
}
