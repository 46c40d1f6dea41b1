package disks

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	v1 "kubevirt.io/api/core/v1"
)

func TestADiskThatIsInUseIsNotLeased(t *testing.T) {
	const atOffset0 = 0
	readOnlyClaim := v1.VolumeSource{PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{
		PersistentVolumeClaimVolumeSource: corev1.PersistentVolumeClaimVolumeSource{ClaimName: "d", ReadOnly: true},
	}}
	for name, c := range map[string]struct {
		locked []int64
		source v1.VolumeSource
		disk   v1.Disk
		want   bool
	}{
		"nobody uses it":               {},
		"another writes":               {locked: []int64{qemuWrites}, want: true},
		"another wants no writer":      {locked: []int64{qemuAloneInWrite}, want: true},
		"another locks something else": {locked: []int64{atOffset0}},
		"the disk is shared":           {locked: []int64{qemuWrites}, disk: v1.Disk{Shareable: new(true)}},
		"it is only read":              {locked: []int64{qemuWrites}, disk: v1.Disk{DiskDevice: v1.DiskDevice{Disk: &v1.DiskTarget{ReadOnly: true}}}},
		"it is a cdrom":                {locked: []int64{qemuWrites}, disk: v1.Disk{DiskDevice: v1.DiskDevice{CDRom: &v1.CDRomTarget{}}}},
		"the claim is only read":       {locked: []int64{qemuWrites}, source: readOnlyClaim},
		"the volume is no claim":       {locked: []int64{qemuWrites}, source: v1.VolumeSource{EmptyDisk: &v1.EmptyDiskSource{}}},
	} {
		t.Run(name, func(t *testing.T) {
			paths := pod(t)
			write(t, filepath.Join(paths.Claims, "v", "disk.img"), 4096)
			lockAsQEMU(t, filepath.Join(paths.Claims, "v", "disk.img"), c.locked)
			if c.source == (v1.VolumeSource{}) {
				c.source = dataVolume()
			}
			machine := vmi(map[string]v1.VolumeSource{"v": c.source})
			c.disk.Name = "v"
			machine.Spec.Domain.Devices.Disks = []v1.Disk{c.disk}
			leases, err := Lease(paths, machine)
			t.Cleanup(leases.Close)
			var used *InUseError
			if got := errors.As(err, &used); got != c.want || err != nil && !got {
				t.Errorf("got %v", err)
			}
			if c.want && (used.Volume != "v" || used.On != "claim d") {
				t.Errorf("got %+v", used)
			}
		})
	}
}

func TestAFileOfTheNodeThatIsInUseIsNotLeased(t *testing.T) {
	for name, c := range map[string]struct {
		disk v1.Disk
		want bool
	}{
		"it is written": {want: true},
		"it is shared":  {disk: v1.Disk{Shareable: new(true)}},
		"it is a disc":  {disk: v1.Disk{DiskDevice: v1.DiskDevice{CDRom: &v1.CDRomTarget{}}}},
	} {
		t.Run(name, func(t *testing.T) {
			paths := pod(t)
			path := filepath.Join(paths.Claims, "v", "vm.img")
			write(t, path, 4096)
			lockAsQEMU(t, path, []int64{qemuWrites})
			machine := vmi(map[string]v1.VolumeSource{"v": {HostDisk: &v1.HostDisk{Path: "/data/vm.img"}}})
			c.disk.Name = "v"
			machine.Spec.Domain.Devices.Disks = []v1.Disk{c.disk}
			_, err := Lease(paths, machine)
			var used *InUseError
			if errors.As(err, &used) != c.want || err != nil && used == nil {
				t.Fatalf("got %v", err)
			}
			if c.want && used.On != "file /data/vm.img of the node" {
				t.Errorf("got %+v", used)
			}
		})
	}
}

func TestADiskThatIsNotThereYetIsLeased(t *testing.T) {
	leases, err := Lease(pod(t), vmi(map[string]v1.VolumeSource{"v": dataVolume()}))
	if err != nil || len(leases.Files()) != 0 {
		t.Errorf("%+v, %v", leases, err)
	}
}

// lockAsQEMU locks bytes of a file as a QEMU does that uses it.
func lockAsQEMU(t *testing.T, path string, at []int64) {
	t.Helper()
	file, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = file.Close() })
	for _, start := range at {
		lock := unix.Flock_t{Type: unix.F_RDLCK, Start: start, Len: 1}
		if err := unix.FcntlFlock(file.Fd(), unix.F_OFD_SETLK, &lock); err != nil {
			t.Fatal(err)
		}
	}
}
