package domain

import (
	"errors"
	"strconv"

	v1 "kubevirt.io/api/core/v1"
	"libvirt.org/go/libvirtxml"
)

// HasVSOCK says whether the guest has sockets to its node.
func HasVSOCK(vmi *v1.VirtualMachineInstance) bool {
	return requested(vmi.Spec.Domain.Devices.AutoattachVSOCK)
}

// vsock is the guest's socket device, with the address that virt-controller gave it. QEMU has no
// transitional one.
func vsock(in Input, domain *libvirtxml.Domain) error {
	if !HasVSOCK(in.VMI) {
		return nil
	}
	cid := in.VMI.Status.VSOCKCID
	if cid == nil {
		return errors.New("status.VSOCKCID is missing, the guest's address; virt-controller sets it before the pod starts: start the VM again")
	}
	domain.Devices.VSock = &libvirtxml.DomainVSock{
		Model: "virtio-non-transitional",
		CID:   &libvirtxml.DomainVSockCID{Auto: "no", Address: strconv.FormatUint(uint64(*cid), 10)},
	}
	return nil
}
