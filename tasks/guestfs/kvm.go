package guestfs

import (
	"os"

	"golang.org/x/sys/unix"
)

// deviceKVM is in the pod where a device plugin gave it one; Slipway's proves KVM first.
const deviceKVM = "/dev/kvm"

// Requests of KVM's interface, and its one version.
const (
	kvmGetAPIVersion = 0xae00
	kvmCreateVM      = 0xae01
	kvmVersion       = 12
)

// kvmWorks says whether the device answers as KVM does and makes a VM.
func kvmWorks(path string) bool {
	device, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return false
	}
	defer func() { _ = device.Close() }()
	fd := int(device.Fd())
	if version, err := unix.IoctlRetInt(fd, kvmGetAPIVersion); err != nil || version != kvmVersion {
		return false
	}
	vm, err := unix.IoctlRetInt(fd, kvmCreateVM)
	if err != nil {
		return false
	}
	return unix.Close(vm) == nil
}
