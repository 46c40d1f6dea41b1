package volume

import (
	"path"
	"strings"

	corev1 "k8s.io/api/core/v1"
	v1 "kubevirt.io/api/core/v1"

	"github.com/slipway-vm/slipway/internal/names"
)

// ImageFile is a file in an image that is a volume of the launcher pod.
type ImageFile struct {
	// Name is what the launcher knows it by: the volume's.
	Name string
	// Folder is where the image's files are, in names.LauncherImagesDir; Path is the file's in the image,
	// empty for the only one under /disk.
	Folder, Path string
}

// InImages are those of missing, files that Missing names, that pod has in image volumes.
func InImages(vmi *v1.VirtualMachineInstance, pod *corev1.Pod, missing []string) []ImageFile {
	mounted := imageFolders(pod)
	var files []ImageFile
	for _, name := range missing {
		if file := imageFile(vmi, name); mounted[file.Folder] {
			files = append(files, file)
		}
	}
	return files
}

func imageFile(vmi *v1.VirtualMachineInstance, name string) ImageFile {
	file := ImageFile{Name: name, Folder: name}
	switch name {
	case names.KernelBootKernel:
		file.Folder, file.Path = names.LauncherKernelImage, vmi.Spec.Domain.Firmware.KernelBoot.Container.KernelPath
	case names.KernelBootInitrd:
		file.Folder, file.Path = names.LauncherKernelImage, vmi.Spec.Domain.Firmware.KernelBoot.Container.InitrdPath
	}
	for _, volume := range vmi.Spec.Volumes {
		if volume.Name == name && volume.ContainerDisk != nil {
			file.Path = volume.ContainerDisk.Path
		}
	}
	return file
}

// imageFolders are the folders below names.LauncherImagesDir where the compute container of pod has images.
func imageFolders(pod *corev1.Pod) map[string]bool {
	images, folders := map[string]bool{}, map[string]bool{}
	for _, volume := range pod.Spec.Volumes {
		images[volume.Name] = volume.Image != nil
	}
	for _, container := range pod.Spec.Containers {
		if container.Name != names.ComputeContainer {
			continue
		}
		for _, mount := range container.VolumeMounts {
			if images[mount.Name] && strings.HasPrefix(mount.MountPath, names.LauncherImagesDir+"/") {
				folders[path.Base(mount.MountPath)] = true
			}
		}
	}
	return folders
}
