package backup_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	virtv1 "kubevirt.io/api/core/v1"

	"github.com/slipway-vm/slipway/internal/backup"
)

func TestARequestIsReadAsItWasWritten(t *testing.T) {
	request := &backup.Request{Name: "monday", UID: "u", Claim: "backups", Created: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC), Base: "sunday", Tracker: "t", SkipQuiesce: true}
	text, err := request.Encode()
	if err != nil {
		t.Fatal(err)
	}
	vmi := &virtv1.VirtualMachineInstance{}
	vmi.Annotations = map[string]string{backup.AnnotationRequest: text}
	if got, err := backup.Requested(vmi); err != nil || *got != *request {
		t.Errorf("got %+v, %v", got, err)
	}
	if volume, found := backup.Target(vmi); !found || volume.Name != "backup-u" || volume.MemoryDump.ClaimName != "backups" {
		t.Errorf("the target is %+v", volume)
	}
	if got := strings.Join(append(request.Folder("web"), request.File("root")), "/"); got != "web/monday-2026-01-02_03-04-05/monday-root.qcow2" {
		t.Errorf("the file is %s", got)
	}
}

func TestAnAnnotationThatIsNoRequest(t *testing.T) {
	for _, text := range []string{"yes", `{"name": "monday"}`} {
		vmi := &virtv1.VirtualMachineInstance{}
		vmi.Annotations = map[string]string{backup.AnnotationRequest: text}
		if got, err := backup.Requested(vmi); err == nil {
			t.Errorf("%s is %+v", text, got)
		}
		if _, found := backup.Target(vmi); found {
			t.Errorf("%s has a target", text)
		}
	}
	if err := (&backup.Request{Name: "../x"}).Validate("web"); err == nil {
		t.Error("a path is a name")
	}
}

func TestTheDisksThatAreAMachinesOwnAreInABackup(t *testing.T) {
	yes := true
	disk := func(name string, change func(*virtv1.Disk)) virtv1.Disk {
		d := virtv1.Disk{Name: name, DiskDevice: virtv1.DiskDevice{Disk: &virtv1.DiskTarget{}}}
		if change != nil {
			change(&d)
		}
		return d
	}
	claim := func(name string, readOnly bool) virtv1.Volume {
		source := &virtv1.PersistentVolumeClaimVolumeSource{PersistentVolumeClaimVolumeSource: corev1.PersistentVolumeClaimVolumeSource{ClaimName: name, ReadOnly: readOnly}}
		return virtv1.Volume{Name: name, VolumeSource: virtv1.VolumeSource{PersistentVolumeClaim: source}}
	}
	spec := &virtv1.VirtualMachineInstanceSpec{}
	spec.Domain.Devices.Disks = []virtv1.Disk{
		disk("root", nil), disk("data", func(d *virtv1.Disk) { d.Disk = nil }), disk("image", nil), disk("looked-at", nil),
		disk("written-by-none", func(d *virtv1.Disk) { d.Disk.ReadOnly = true }), disk("shared", func(d *virtv1.Disk) { d.Shareable = &yes }),
		disk("disc", func(d *virtv1.Disk) { d.Disk, d.CDRom = nil, &virtv1.CDRomTarget{} }), disk("lun", func(d *virtv1.Disk) { d.Disk, d.LUN = nil, &virtv1.LunTarget{} }),
	}
	spec.Volumes = []virtv1.Volume{
		{Name: "root", VolumeSource: virtv1.VolumeSource{DataVolume: &virtv1.DataVolumeSource{Name: "root"}}},
		{Name: "image", VolumeSource: virtv1.VolumeSource{ContainerDisk: &virtv1.ContainerDiskSource{Image: "i"}}},
		claim("data", false), claim("looked-at", true), claim("written-by-none", false), claim("shared", false), claim("disc", false), claim("lun", false), claim("folder", false),
	}
	if got := backup.Volumes(spec); !slices.Equal(got, []string{"root", "data"}) {
		t.Errorf("got %v", got)
	}
}
