package pod

import (
	"path"

	corev1 "k8s.io/api/core/v1"

	"github.com/slipway-vm/slipway/internal/names"
)

// imageVolumes are the images of the VMI's container disks, and of the kernel that it boots, as
// volumes of the pod that the kubelet mounts to be read, where the cluster has such.
func imageVolumes(in Input) ([]corev1.Volume, []corev1.VolumeMount) {
	if !in.ImageVolumes {
		return nil, nil
	}
	var volumes []corev1.Volume
	var mounts []corev1.VolumeMount
	add := func(name, folder, image string, policy corev1.PullPolicy) {
		volumes = append(volumes, corev1.Volume{Name: name, VolumeSource: corev1.VolumeSource{
			Image: &corev1.ImageVolumeSource{Reference: image, PullPolicy: policy},
		}})
		mounts = append(mounts, corev1.VolumeMount{Name: name, MountPath: path.Join(names.LauncherImagesDir, folder), ReadOnly: true})
	}
	for _, volume := range in.VMI.Spec.Volumes {
		if disk := volume.ContainerDisk; disk != nil {
			add(podVolume(volume.Name), volume.Name, disk.Image, disk.ImagePullPolicy)
		}
	}
	if kernel := kernelContainer(in.VMI); kernel != nil {
		add(names.VolumeKernel, names.LauncherKernelImage, kernel.Image, kernel.ImagePullPolicy)
	}
	return volumes, mounts
}
