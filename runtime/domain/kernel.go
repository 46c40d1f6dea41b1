package domain

import (
	"errors"

	v1 "kubevirt.io/api/core/v1"
	"libvirt.org/go/libvirtxml"
)

// Kernel are the files that a VMI boots without a boot loader; empty for none.
type Kernel struct{ Kernel, Initrd string }

// kernelBoot has the firmware start the kernel itself.
func kernelBoot(in Input, spec *v1.KernelBoot, os *libvirtxml.DomainOS) error {
	if spec == nil || spec.Container == nil {
		return nil
	}
	if in.Kernel.Kernel == "" || (in.Kernel.Initrd == "") != (spec.Container.InitrdPath == "") {
		return errors.New("spec.domain.firmware.kernelBoot: its kernel or initrd did not reach the launcher; the pod's init containers kernel-boot-kernel and kernel-boot-initrd say why")
	}
	os.Kernel, os.Initrd, os.Cmdline = in.Kernel.Kernel, in.Kernel.Initrd, spec.KernelArgs
	return nil
}
