package vmi

import (
	"fmt"
	"path"

	corev1 "k8s.io/api/core/v1"
	v1 "kubevirt.io/api/core/v1"

	"github.com/slipway-vm/slipway/internal/names"
	"github.com/slipway-vm/slipway/runtime/handler/hostdisk"
	"github.com/slipway-vm/slipway/runtime/protocol"
)

// toleratedSmall is the field's reason for a disk that became a little less than was asked for.
const toleratedSmall = v1.SyncEvent("ToleratedSmallPV")

// makeHostDisks makes the files of the node that the VMI wants made, before its guest starts: the
// launcher may not write to the node's folders.
func (r *Reconciler) makeHostDisks(s *scope, limits hostdisk.Limits) error {
	if s.view.State.Phase != protocol.PhaseNone {
		return nil // one that is gone by now is the guest's all the same
	}
	for i := range s.vmi.Spec.Volumes {
		volume := &s.vmi.Spec.Volumes[i]
		if volume.HostDisk == nil || volume.HostDisk.Type != v1.HostDiskExistsOrCreate {
			continue
		}
		if err := r.makeHostDisk(s, volume.Name, volume.HostDisk, limits); err != nil {
			return fmt.Errorf("preparing volume %s of VMI %s: %w", volume.Name, s.vmi.Name, err)
		}
	}
	return nil
}

func (r *Reconciler) makeHostDisk(s *scope, volume string, disk *v1.HostDisk, limits hostdisk.Limits) error {
	mount := path.Join(path.Base(names.LauncherDisksDir), volume)
	folder, err := s.view.Launcher.OpenMount(path.Dir(names.LauncherDisksDir), mount)
	if err != nil {
		return err
	}
	defer folder.Close()
	wanted := disk.Capacity.Value()
	size, err := hostdisk.Make(folder, hostdisk.File{Name: path.Base(disk.Path), Capacity: wanted, Owner: names.QEMUUser, Limits: limits})
	if err != nil {
		return fmt.Errorf("making %s of the node: %w", disk.Path, err)
	}
	if size > 0 && size < wanted {
		r.event(s.vmi, corev1.EventTypeNormal, toleratedSmall, fmt.Sprintf(
			"PV size too small: expected %d B, found %d B for %s. Using it anyway, it is within %d %% toleration", wanted, size, disk.Path, limits.Tolerance))
	}
	return nil
}
