package volume

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	v1 "kubevirt.io/api/core/v1"

	"github.com/slipway-vm/slipway/internal/names"
)

func TestWhatAGuestDoesWithItsDisk(t *testing.T) {
	for name, c := range map[string]struct {
		disk v1.Disk
		want Access
	}{
		"a disk":           {v1.Disk{DiskDevice: v1.DiskDevice{Disk: &v1.DiskTarget{}}}, Access{Writes: true, Alone: true}},
		"a shared one":     {v1.Disk{Shareable: new(true), DiskDevice: v1.DiskDevice{Disk: &v1.DiskTarget{}}}, Access{Writes: true}},
		"one that is read": {v1.Disk{DiskDevice: v1.DiskDevice{Disk: &v1.DiskTarget{ReadOnly: true}}}, Access{}},
		"a disc":           {v1.Disk{DiskDevice: v1.DiskDevice{CDRom: &v1.CDRomTarget{}}}, Access{}},
		"a lun":            {v1.Disk{DiskDevice: v1.DiskDevice{LUN: &v1.LunTarget{}}}, Access{Writes: true, Alone: true}},
		"a lun to be read": {v1.Disk{DiskDevice: v1.DiskDevice{LUN: &v1.LunTarget{ReadOnly: true}}}, Access{}},
	} {
		t.Run(name, func(t *testing.T) {
			vmi := &v1.VirtualMachineInstance{}
			c.disk.Name = "data"
			vmi.Spec.Domain.Devices.Disks = []v1.Disk{{Name: "root"}, c.disk}
			if got := AccessOf(vmi, "data"); got != c.want {
				t.Errorf("got %+v, want %+v", got, c.want)
			}
		})
	}
	if got := AccessOf(&v1.VirtualMachineInstance{}, "data"); got != (Access{}) {
		t.Errorf("a disk that is not there: %+v", got)
	}
}

func TestHowAnAttachmentPodHasItsVolume(t *testing.T) {
	pod := &corev1.Pod{}
	pod.Spec.Containers = []corev1.Container{{Name: "injected", VolumeDevices: []corev1.VolumeDevice{{Name: "x"}}}, {Name: names.AppAttachment}}
	if HeldAsDevice(pod) {
		t.Error("a folder is taken for a device")
	}
	pod.Spec.Containers[1].VolumeDevices = []corev1.VolumeDevice{{Name: "data"}}
	if !HeldAsDevice(pod) {
		t.Error("a device is not seen")
	}
}
