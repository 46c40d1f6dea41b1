package virtualmachineinstance

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	virtv1 "kubevirt.io/api/core/v1"
)

// onClaim is a VMI with a disk on claim "shop".
func onClaim(edit func(disk *virtv1.Disk, source *virtv1.PersistentVolumeClaimVolumeSource)) *virtv1.VirtualMachineInstance {
	source := &virtv1.PersistentVolumeClaimVolumeSource{
		PersistentVolumeClaimVolumeSource: corev1.PersistentVolumeClaimVolumeSource{ClaimName: "shop"},
	}
	disk := virtv1.Disk{Name: "data"}
	if edit != nil {
		edit(&disk, source)
	}
	vmi := &virtv1.VirtualMachineInstance{}
	vmi.Spec.Domain.Devices.Disks = []virtv1.Disk{disk}
	vmi.Spec.Volumes = []virtv1.Volume{{Name: "data", VolumeSource: virtv1.VolumeSource{PersistentVolumeClaim: source}}}
	return vmi
}

func TestWhoExcludesWhomFromAClaim(t *testing.T) {
	writer := onClaim(nil)
	shared := onClaim(func(disk *virtv1.Disk, _ *virtv1.PersistentVolumeClaimVolumeSource) { disk.Shareable = new(true) })
	cdrom := onClaim(func(disk *virtv1.Disk, _ *virtv1.PersistentVolumeClaimVolumeSource) {
		disk.CDRom = &virtv1.CDRomTarget{}
	})
	reader := onClaim(func(disk *virtv1.Disk, _ *virtv1.PersistentVolumeClaimVolumeSource) {
		disk.Disk = &virtv1.DiskTarget{ReadOnly: true}
	})
	bound := onClaim(func(_ *virtv1.Disk, source *virtv1.PersistentVolumeClaimVolumeSource) { source.ReadOnly = true })
	unattached := onClaim(nil)
	unattached.Spec.Domain.Devices.Disks = nil
	overlaid := onClaim(nil)
	overlaid.Spec.Volumes[0].VolumeSource = virtv1.VolumeSource{Ephemeral: &virtv1.EphemeralVolumeSource{
		PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "shop"},
	}}
	elsewhere := onClaim(func(_ *virtv1.Disk, source *virtv1.PersistentVolumeClaimVolumeSource) { source.ClaimName = "other" })
	fromDataVolume := onClaim(nil)
	fromDataVolume.Spec.Volumes[0].VolumeSource = virtv1.VolumeSource{DataVolume: &virtv1.DataVolumeSource{Name: "shop"}}
	mounting := onClaim(func(disk *virtv1.Disk, _ *virtv1.PersistentVolumeClaimVolumeSource) { disk.Name = "other" })
	mounting.Spec.Domain.Devices.Filesystems = []virtv1.Filesystem{{Name: "data", Virtiofs: &virtv1.FilesystemVirtiofs{}}}
	for name, c := range map[string]struct {
		a, b *virtv1.VirtualMachineInstance
		want bool
	}{
		"two writers":                {writer, writer, true},
		"the same by its DataVolume": {writer, fromDataVolume, true},
		"a writer and one who reads": {writer, cdrom, true},
		"one who reads and a writer": {reader, writer, true},
		"two who read":               {cdrom, reader, false},
		"by the claim's own word":    {bound, cdrom, false},
		"two overlays":               {overlaid, overlaid, false},
		"an overlay and a writer":    {overlaid, writer, true},
		"two who share":              {shared, shared, false},
		"one who shares, one not":    {shared, writer, true},
		"a volume without a disk":    {writer, unattached, false},
		"two who mount it":           {mounting, mounting, false},
		"one who mounts, one writes": {mounting, writer, true},
		"one who mounts, one reads":  {mounting, reader, true},
		"another claim":              {writer, elsewhere, false},
	} {
		t.Run(name, func(t *testing.T) {
			if got := excludes(c.a, c.b, "shop"); got != c.want {
				t.Errorf("got %t", got)
			}
			if got := excludes(c.b, c.a, "shop"); got != c.want {
				t.Errorf("the other way round: got %t", got)
			}
		})
	}
}

func TestWhoHoldsAClaim(t *testing.T) {
	for name, c := range map[string]struct {
		status virtv1.VirtualMachineInstanceStatus
		want   bool
	}{
		"one that waits for its volumes": {virtv1.VirtualMachineInstanceStatus{Phase: virtv1.Pending}, false},
		"one whose pod has no node":      {virtv1.VirtualMachineInstanceStatus{Phase: virtv1.Scheduling}, false},
		"one on a node":                  {virtv1.VirtualMachineInstanceStatus{Phase: virtv1.Scheduling, NodeName: "here"}, true},
		"one that runs":                  {virtv1.VirtualMachineInstanceStatus{Phase: virtv1.Running, NodeName: "here"}, true},
		"one that ended":                 {virtv1.VirtualMachineInstanceStatus{Phase: virtv1.Failed, NodeName: "here"}, false},
	} {
		t.Run(name, func(t *testing.T) {
			vmi := onClaim(nil)
			vmi.Status = c.status
			if got := holds(vmi); got != c.want {
				t.Errorf("got %t", got)
			}
		})
	}
}
