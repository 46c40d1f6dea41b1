package virtualmachineinstance

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	virtv1 "kubevirt.io/api/core/v1"
)

func TestABlockDeviceIsNoFolder(t *testing.T) {
	vmi := &virtv1.VirtualMachineInstance{}
	vmi.Spec.Domain.Devices.Filesystems = []virtv1.Filesystem{{Name: "work", Virtiofs: &virtv1.FilesystemVirtiofs{}}}
	state := func(name string, mode corev1.PersistentVolumeMode) volumeState {
		claim := &corev1.PersistentVolumeClaim{}
		claim.Spec.VolumeMode = &mode
		return volumeState{name: name, claim: "shop", pvc: claim}
	}
	for name, c := range map[string]struct {
		state volumeState
		want  string
	}{
		"a folder":                  {state("work", corev1.PersistentVolumeFilesystem), ""},
		"a block device":            {state("work", corev1.PersistentVolumeBlock), "PVC shop has the volume mode Block, and the guest mounts it as filesystem work; use a PVC of the mode Filesystem"},
		"a block device, as a disk": {state("root", corev1.PersistentVolumeBlock), ""},
		"a claim that is not there": {volumeState{name: "work", claim: "shop"}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			got := sentences(withoutFolder(vmi, []volumeState{c.state}))
			if got != c.want {
				t.Errorf("got %q", got)
			}
		})
	}
}
