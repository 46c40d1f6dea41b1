package domain

import (
	"errors"
	"fmt"
	"strconv"

	v1 "kubevirt.io/api/core/v1"
	"libvirt.org/go/libvirtxml"
)

// filesystemQueue is how many requests a guest may have waiting at a filesystem, the field's number.
const filesystemQueue = 1024

// FilesystemSocket is the unix socket of the server of the filesystem that is number index of
// the VMI's list. Their names may be too long for a socket's path.
func FilesystemSocket(sockets string, index int) string { return sockets + strconv.Itoa(index) }

// filesystems gives the guest the folders that it mounts by their names, each served by a
// process beside QEMU. QEMU has the device on PCI Express only, whatever the VMI says of virtio.
func filesystems(in Input, domain *libvirtxml.Domain) error {
	for i, filesystem := range in.VMI.Spec.Domain.Devices.Filesystems {
		if filesystem.Virtiofs == nil {
			return fmt.Errorf("spec.domain.devices.filesystems[%d] (%s) has no virtiofs, the only way in which a guest gets a folder; set it", i, filesystem.Name)
		}
		if in.FilesystemSockets == "" {
			return errors.New("spec.domain.devices.filesystems: nobody serves them in this pod")
		}
		domain.Devices.Filesystems = append(domain.Devices.Filesystems, libvirtxml.DomainFilesystem{
			Driver: &libvirtxml.DomainFilesystemDriver{Type: "virtiofs", Queue: filesystemQueue},
			Source: &libvirtxml.DomainFilesystemSource{Mount: &libvirtxml.DomainFilesystemSourceMount{Socket: FilesystemSocket(in.FilesystemSockets, i)}},
			Target: &libvirtxml.DomainFilesystemTarget{Dir: filesystem.Name},
		})
	}
	return nil
}

// sharedMemory lets the processes that serve the guest's filesystems read and write its memory:
// QEMU has it in a file without a name, which it hands to them. It comes after hugepages.
func sharedMemory(in Input, domain *libvirtxml.Domain) error {
	if !sharesMemory(in.VMI) {
		return nil
	}
	if domain.MemoryBacking == nil {
		domain.MemoryBacking = &libvirtxml.DomainMemoryBacking{MemorySource: &libvirtxml.DomainMemorySource{Type: "memfd"}}
	}
	domain.MemoryBacking.MemoryAccess = &libvirtxml.DomainMemoryAccess{Mode: "shared"}
	return nil
}

func sharesMemory(vmi *v1.VirtualMachineInstance) bool {
	return len(vmi.Spec.Domain.Devices.Filesystems) > 0
}
