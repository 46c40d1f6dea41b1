package virtualmachinebackup

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	backupv1 "kubevirt.io/api/backup/v1alpha1"
	virtv1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-vm/slipway/internal/backup"
)

// checkSource waits for what is backed up, and fails when it ended while the backup went on.
func (r *Reconciler) checkSource(_ context.Context, s *scope) error {
	name := s.backup.Spec.Source.Name
	switch {
	case s.begun() && (s.vmi == nil || !s.ours()):
		return fail(backupv1.ReasonSourceLost, "VMI was deleted during backup")
	case s.begun() && (s.vmi.IsFinal() || s.vmi.DeletionTimestamp != nil):
		return fail(backupv1.ReasonSourceUnhealthy, "VMI is not in a running state: %s", s.vmi.Status.Phase)
	case s.begun():
		return nil
	case byTracker(s.backup) && s.tracker == nil:
		return wait("BackupTracker %s does not exist", name)
	case s.vm == nil:
		return wait("VM %s/%s doesnt exist", s.backup.Namespace, s.machine)
	case s.vmi == nil || !s.vmi.IsRunning() || s.vmi.DeletionTimestamp != nil:
		return wait("vm %s is not running, cannot do backup", s.machine)
	}
	return nil
}

// checkInstance waits for an instance of which there is something to back up.
func (r *Reconciler) checkInstance(_ context.Context, s *scope) error {
	switch {
	case s.begun():
		return nil
	case len(backup.Volumes(&s.vmi.Spec)) == 0:
		return wait("vm %s has no volumes to backup", s.machine)
	case !backup.Tracked(s.vmi.Status.ChangedBlockTracking):
		return wait("vm %s has no ChangedBlockTracking, cannot start backup", s.machine)
	}
	return nil
}

// checkClaim looks whether files can be written to the claim.
func (r *Reconciler) checkClaim(ctx context.Context, s *scope) error {
	if s.begun() {
		return nil
	}
	name := claimOf(s.backup)
	claim := &corev1.PersistentVolumeClaim{}
	found, err := r.get(ctx, client.ObjectKey{Namespace: s.backup.Namespace, Name: name}, claim)
	switch {
	case err != nil:
		return err
	case !found:
		return wait("PVC %s/%s doesnt exist", s.backup.Namespace, name)
	case claim.Spec.VolumeMode != nil && *claim.Spec.VolumeMode == corev1.PersistentVolumeBlock:
		return fail(backupv1.ReasonFailed, "backup target PVC must be a filesystem PVC, provided pvc %s/%s is block", s.backup.Namespace, name)
	case len(claim.Spec.AccessModes) == 1 && claim.Spec.AccessModes[0] == corev1.ReadOnlyMany:
		return fail(backupv1.ReasonFailed, "backup target PVC must be writable, provided pvc %s/%s has the access mode ReadOnlyMany", s.backup.Namespace, name)
	}
	for i := range s.vmi.Spec.Volumes {
		if volume := &s.vmi.Spec.Volumes[i]; claimBehind(volume) == name {
			return fail(backupv1.ReasonFailed, "pvc %s/%s is volume %s of the machine that is backed up; use another pvc", s.backup.Namespace, name, volume.Name)
		}
	}
	return nil
}

// claimBehind is the claim that a volume of a machine is on, "" for none.
func claimBehind(volume *virtv1.Volume) string {
	switch {
	case volume.DataVolume != nil:
		return volume.DataVolume.Name
	case volume.PersistentVolumeClaim != nil:
		return volume.PersistentVolumeClaim.ClaimName
	case volume.MemoryDump != nil:
		return volume.MemoryDump.ClaimName
	}
	return ""
}

// waitForTurn waits while the VMI is asked for another backup.
func (r *Reconciler) waitForTurn(_ context.Context, s *scope) error {
	if s.asked == nil || s.ours() {
		return nil
	}
	return wait("another backup %s is already in progress, cannot start backup %s", s.asked.Name, s.backup.Name)
}
