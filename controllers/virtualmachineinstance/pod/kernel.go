package pod

import (
	"strings"

	virtv1 "kubevirt.io/api/core/v1"

	"github.com/slipway-vm/slipway/internal/names"
)

// kernelContainer is the image with the kernel that vmi boots, nil for none.
func kernelContainer(vmi *virtv1.VirtualMachineInstance) *virtv1.KernelBootContainer {
	firmware := vmi.Spec.Domain.Firmware
	if firmware == nil || firmware.KernelBoot == nil {
		return nil
	}
	return firmware.KernelBoot.Container
}

// kernelContainerPrefix begins the names of the init containers that hand over the kernel and
// its initial file system.
const kernelContainerPrefix = "kernel-boot-"

// BootsKernel says whether an init container of that name is one of these.
func BootsKernel(container string) bool { return strings.HasPrefix(container, kernelContainerPrefix) }

// kernelFiles are the kernel and its initial file system in that image.
func kernelFiles(vmi *virtv1.VirtualMachineInstance) []fileInImage {
	from := kernelContainer(vmi)
	if from == nil {
		return nil
	}
	var files []fileInImage
	for _, file := range []fileInImage{
		{name: names.KernelBootKernel, path: from.KernelPath, container: kernelContainerPrefix + "kernel"},
		{name: names.KernelBootInitrd, path: from.InitrdPath, container: kernelContainerPrefix + "initrd"},
	} {
		if file.path != "" {
			file.image, file.policy = from.Image, from.ImagePullPolicy
			files = append(files, file)
		}
	}
	return files
}
