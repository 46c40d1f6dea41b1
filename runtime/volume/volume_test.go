package volume

import (
	"reflect"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	v1 "kubevirt.io/api/core/v1"

	"github.com/slipway-vm/slipway/runtime/protocol"
)

func testVMI() *v1.VirtualMachineInstance {
	vmi := &v1.VirtualMachineInstance{}
	vmi.Spec.Volumes = []v1.Volume{
		{Name: "root", VolumeSource: v1.VolumeSource{ContainerDisk: &v1.ContainerDiskSource{Image: "x"}}},
		{Name: "data", VolumeSource: v1.VolumeSource{DataVolume: &v1.DataVolumeSource{Name: "dv"}}},
		{Name: "tools", VolumeSource: v1.VolumeSource{ContainerDisk: &v1.ContainerDiskSource{Image: "y"}}},
	}
	return vmi
}

func TestOnlyContainerDisksThatAreNotHeldAreMissing(t *testing.T) {
	if got := Missing(testVMI(), []string{"tools"}); !reflect.DeepEqual(got, []string{"root"}) {
		t.Errorf("got %v", got)
	}
	if got := Missing(testVMI(), []string{"root", "tools"}); got != nil {
		t.Errorf("got %v", got)
	}
}

func TestTheFilesOfAKernelBootAreHandedOverToo(t *testing.T) {
	vmi := testVMI()
	container := &v1.KernelBootContainer{Image: "k", KernelPath: "/vmlinuz", InitrdPath: "/initrd"}
	vmi.Spec.Domain.Firmware = &v1.Firmware{KernelBoot: &v1.KernelBoot{Container: container}}
	if got := Missing(vmi, []string{"root", "tools"}); !reflect.DeepEqual(got, []string{"kernel-boot/kernel", "kernel-boot/initrd"}) {
		t.Errorf("got %v", got)
	}
	container.InitrdPath = ""
	if got := Missing(vmi, []string{"root", "tools", "kernel-boot/kernel"}); got != nil {
		t.Errorf("without an initrd got %v", got)
	}
}

func TestBlockDevicesAreThoseOfTheComputeContainer(t *testing.T) {
	pod := &corev1.Pod{}
	pod.Spec.Containers = []corev1.Container{
		{Name: "sidecar", VolumeDevices: []corev1.VolumeDevice{{DevicePath: "/dev/other"}}},
		{Name: "compute", VolumeDevices: []corev1.VolumeDevice{{DevicePath: "/dev/data"}}},
	}
	if got := BlockDevices(pod); !reflect.DeepEqual(got, []string{"/dev/data"}) {
		t.Errorf("got %v", got)
	}
}

func TestStatusNamesTheClaimBehindADisk(t *testing.T) {
	got := Status(testVMI(), []protocol.Disk{{Volume: "root", Target: "vda", Size: 5}, {Volume: "data", Target: "vdb", Size: 7}}, []string{"data"})
	want := []v1.VolumeStatus{
		{Name: "root", Target: "vda", Size: 5},
		{Name: "data", Target: "vdb", Size: 7, PersistentVolumeClaimInfo: &v1.PersistentVolumeClaimInfo{ClaimName: "dv", Preallocated: true}},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

func TestAClaimSaysThatItsDiskKeepsAllOfItsSize(t *testing.T) {
	for annotation, want := range map[string]bool{
		"cdi.kubevirt.io/storage.preallocation=true":           true,
		"cdi.kubevirt.io/storage.preallocation.requested=true": true,
		"example.com/storage.thick-provisioned=true":           true,
		"cdi.kubevirt.io/storage.preallocation=false":          false,
		"storage.preallocation=true":                           false,
		"cdi.kubevirt.io/storage.pod.phase=true":               false,
	} {
		name, value, _ := strings.Cut(annotation, "=")
		claim := &corev1.PersistentVolumeClaim{}
		claim.Annotations = map[string]string{name: value}
		if got := Preallocated(claim); got != want {
			t.Errorf("%s: %v, want %v", annotation, got, want)
		}
	}
}
