package volume

import (
	"reflect"
	"testing"

	corev1 "k8s.io/api/core/v1"
	v1 "kubevirt.io/api/core/v1"
)

func TestFilesInImageVolumes(t *testing.T) {
	vmi := testVMI()
	vmi.Spec.Volumes[0].ContainerDisk.Path = "/disk/a.qcow2"
	vmi.Spec.Domain.Firmware = &v1.Firmware{KernelBoot: &v1.KernelBoot{Container: &v1.KernelBootContainer{Image: "k", KernelPath: "/vmlinuz", InitrdPath: "/initrd"}}}
	mount := func(name, path string) corev1.VolumeMount { return corev1.VolumeMount{Name: name, MountPath: path} }
	pod := &corev1.Pod{}
	pod.Spec.Volumes = []corev1.Volume{
		{Name: "root", VolumeSource: corev1.VolumeSource{Image: &corev1.ImageVolumeSource{Reference: "x"}}},
		{Name: "kernel-boot-image", VolumeSource: corev1.VolumeSource{Image: &corev1.ImageVolumeSource{Reference: "k"}}},
		{Name: "tools", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}},
	}
	pod.Spec.Containers = []corev1.Container{
		{Name: "injected", VolumeMounts: []corev1.VolumeMount{mount("root", "/var/run/kubevirt/image-volumes/tools")}},
		{Name: "compute", VolumeMounts: []corev1.VolumeMount{
			mount("root", "/var/run/kubevirt/image-volumes/root"), mount("kernel-boot-image", "/var/run/kubevirt/image-volumes/kernel_boot"), mount("tools", "/var/run/kubevirt/image-volumes/tools"),
		}},
	}
	want := []ImageFile{
		{Name: "root", Folder: "root", Path: "/disk/a.qcow2"},
		{Name: "kernel-boot/kernel", Folder: "kernel_boot", Path: "/vmlinuz"},
		{Name: "kernel-boot/initrd", Folder: "kernel_boot", Path: "/initrd"},
	}
	if got := InImages(vmi, pod, Missing(vmi, nil)); !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
	if got := InImages(vmi, &corev1.Pod{}, Missing(vmi, nil)); got != nil {
		t.Errorf("of a pod without image volumes: %+v", got)
	}
}
