package vmi

import (
	"context"
	"errors"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	backupv1 "kubevirt.io/api/backup/v1alpha1"
	v1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/slipway-vm/slipway/internal/backup"
	"github.com/slipway-vm/slipway/runtime/handler/session"
	"github.com/slipway-vm/slipway/runtime/protocol"
	"github.com/slipway-vm/slipway/runtime/volume"
)

// reasonBackupFailed is that of a volume to which a backup cannot be written.
const reasonBackupFailed = "BackupFailed" // ours

// abortedEarly is why a backup failed that was ended before it had begun.
const abortedEarly = "the backup was aborted before it had begun"

// backupStatus is the part of a VMI's status of changed block tracking that virt-handler owns; virt-controller
// says whether there is any.
type backupStatus struct {
	BackupStatus *v1.VirtualMachineInstanceBackupStatus `json:"backupStatus,omitempty"`
}

func currentBackup(status *v1.VirtualMachineInstanceStatus) *backupStatus {
	if status.ChangedBlockTracking == nil || status.ChangedBlockTracking.BackupStatus == nil {
		return nil
	}
	return &backupStatus{BackupStatus: status.ChangedBlockTracking.BackupStatus}
}

// requestedBackup is what virt-controller asks of vmi; what nobody can read is no request.
func requestedBackup(ctx context.Context, vmi *v1.VirtualMachineInstance) *backup.Request {
	request, err := backup.Requested(vmi)
	if err != nil {
		log.FromContext(ctx).Error(err, "Leaving a request for a backup alone")
		return nil
	}
	return request
}

// backUp has the launcher write the guest's disks to the claim that virt-controller asks for, once, and ends
// what is asked for no more.
func (r *Reconciler) backUp(ctx context.Context, s *scope) error {
	if !guestRuns(s) {
		return nil
	}
	ctx, stop := context.WithTimeout(ctx, syncTimeout)
	defer stop()
	request := s.backup
	switch {
	case backupUnwanted(s):
		id := s.view.State.Backup.ID
		log.FromContext(ctx).Info("Aborting a backup", "backup", id)
		return s.backupAnswered(s.session.AbortBackup(ctx, id))
	case !backupDue(s):
		return nil
	}
	a := attachmentOf(s, request.Volume(), request.Claim)
	if a == nil || isBlock(s.claims[request.Volume()]) {
		return nil
	}
	disks := backupDisks(s)
	if err := request.Validate(s.vmi.Name); err != nil {
		s.backupRefused = err.Error()
	} else if len(disks) == 0 {
		s.backupRefused = fmt.Sprintf("vm %s has no volumes to backup", s.vmi.Name) // the field's words
	}
	if s.backupRefused != "" || !a.holds() {
		return nil
	}
	folder, err := a.session.Volume()
	if err != nil {
		return err
	}
	defer folder.Close()
	log.FromContext(ctx).Info("Backing up the guest's disks", "backup", request.Name, "claim", request.Claim, "attachmentPod", a.pod.Name)
	return s.backupAnswered(s.session.BackUp(ctx, backupMessage(s.vmi, request, disks), folder))
}

// backupAnswered takes in the launcher's answer. One that is too old never will do it; one that is away will be back.
func (s *scope) backupAnswered(err error) error {
	s.view = s.session.View()
	switch {
	case errors.Is(err, session.ErrOldLauncher):
		s.backupRefused = err.Error()
		return nil
	case errors.Is(err, session.ErrNotConnected):
		return nil
	}
	return err
}

// backupDisks are the disks of the guest that are in a backup: those on their way out, or that have yet to come, are not.
func backupDisks(s *scope) []protocol.BackupDisk {
	var disks []protocol.BackupDisk
	for _, name := range backup.Volumes(&s.vmi.Spec) {
		if disk := diskOf(s, name); disk != nil && !disk.Leaving {
			disks = append(disks, protocol.BackupDisk{Volume: name, File: s.backup.File(name), Target: disk.Target})
		}
	}
	return disks
}

func backupMessage(vmi *v1.VirtualMachineInstance, request *backup.Request, disks []protocol.BackupDisk) protocol.Backup {
	what := protocol.Backup{ID: string(request.UID), Folder: request.Folder(vmi.Name), Disks: disks, SkipQuiesce: request.SkipQuiesce}
	if request.Tracker != "" {
		what.Tracker, what.Checkpoint, what.Base = string(request.Tracker), request.Checkpoint(), request.Base
	}
	return what
}

// backupUnwanted says whether the guest's disks are being copied for what is asked for no more.
func backupUnwanted(s *scope) bool {
	return backupGoesOn(s) && (!backupBegun(s) || s.backup.Abort)
}

// backupDue says whether the backup that is asked for has yet to begin.
func backupDue(s *scope) bool {
	return s.backup != nil && !s.backup.Abort && !backupBegun(s) && !backupOver(s)
}

// backupGoesOn says whether the guest's disks are being copied.
func backupGoesOn(s *scope) bool {
	return s.view.State.Backup != nil && s.view.State.Backup.Ended == nil
}

// backupBegun says whether the launcher has told of the backup that is asked for.
func backupBegun(s *scope) bool {
	return s.backup != nil && s.view.State.Backup != nil && s.view.State.Backup.ID == string(s.backup.UID)
}

// backupOver says whether the status tells of the end of the backup that is asked for. The volume is named after it.
func backupOver(s *scope) bool {
	return s.backup != nil && s.before.ChangedBlockTracking != nil && s.before.ChangedBlockTracking.BackupStatus.Completed &&
		s.before.volume(s.backup.Volume()) != nil
}

// writesBackup says whether the volume is written to by a backup, or is to be.
func writesBackup(s *scope, name string) bool {
	if s.backup != nil && s.backup.Volume() == name {
		return true
	}
	return backupGoesOn(s) && (&backup.Request{UID: types.UID(s.view.State.Backup.ID)}).Volume() == name
}

// backupOf is what is said of the backup that is asked for; nil for none, and where virt-controller does not say that there is to be any.
func backupOf(s *scope) *backupStatus {
	if s.backup == nil || s.vmi.Status.ChangedBlockTracking == nil || s.vmi.Status.ChangedBlockTracking.State == "" {
		return nil
	}
	if backupOver(s) {
		return s.before.ChangedBlockTracking
	}
	status := &v1.VirtualMachineInstanceBackupStatus{BackupName: s.backup.Name}
	switch {
	case backupBegun(s):
		describeBackup(status, s.backup, s.view.State.Backup)
	case backupFailure(s) != "":
		now := metav1.Now().Rfc3339Copy()
		failure := backupFailure(s)
		status.Completed, status.Failed, status.EndTimestamp, status.BackupMsg = true, true, &now, &failure
	}
	return &backupStatus{BackupStatus: status}
}

// backupFailure is why a backup fails that has not begun; empty for one that may.
func backupFailure(s *scope) string {
	switch {
	case s.backup.Abort:
		return abortedEarly
	case isBlock(s.claims[s.backup.Volume()]):
		return fmt.Sprintf("backup target PVC must be a filesystem PVC, provided pvc %s/%s is block", s.vmi.Namespace, s.backup.Claim) // the field's words
	}
	return s.backupRefused
}

// describeBackup says how a backup that has begun goes on, in the field's words.
func describeBackup(status *v1.VirtualMachineInstanceBackupStatus, request *backup.Request, state *protocol.BackupState) {
	began := metav1.NewTime(state.Began).Rfc3339Copy()
	status.StartTimestamp = &began
	if state.Copying {
		for _, disk := range state.Disks {
			status.Volumes = append(status.Volumes, backupv1.BackupVolumeInfo{VolumeName: disk.Volume, DiskTarget: disk.Target})
		}
		status.QuiesceStatus = string(state.Quiesce)
		if request.Tracker != "" {
			checkpoint := request.Checkpoint()
			status.CheckpointName = &checkpoint
		}
	}
	message := state.Warning
	if state.Ended != nil {
		ended := metav1.NewTime(*state.Ended).Rfc3339Copy()
		status.EndTimestamp, status.Completed, status.Failed = &ended, true, state.Error != ""
		if state.Error != "" {
			message = state.Error
		}
	}
	if message != "" {
		status.BackupMsg = &message
	}
}

// backupTargets is what is said of the volume that a backup is written to.
func backupTargets(s *scope) []v1.VolumeStatus {
	if s.backup == nil {
		return aborting(s)
	}
	name, claimName := s.backup.Volume(), s.backup.Claim
	claim := s.claims[name]
	status := v1.VolumeStatus{Name: name, PersistentVolumeClaimInfo: claimInfo(claimName, claim)}
	a := attachmentOf(s, name, claimName)
	if a != nil {
		status.HotplugVolume = &v1.HotplugVolumeStatus{AttachPodName: a.pod.Name, AttachPodUID: a.pod.UID}
	}
	switch {
	case backupOver(s):
		before := s.before.volume(name)
		status.Phase, status.Reason, status.Message = before.Phase, before.Reason, before.Message
	case backupBegun(s) && s.view.State.Backup.Copying:
		status.Phase, status.Reason, status.Message = v1.HotplugVolumeMounted, backup.ReasonFull, "all of the disks is written to the volume"
		if s.view.State.Backup.Incremental {
			status.Reason, status.Message = backup.ReasonIncremental, "what has changed of the disks since checkpoint "+s.backup.Base+" is written to the volume"
		}
	case backupFailure(s) != "" && !backupBegun(s):
		status.Phase, status.Reason, status.Message = v1.VolumeBound, reasonBackupFailed, backupFailure(s)
	case a != nil && a.holds():
		status.Phase, status.Reason = v1.HotplugVolumeAttachedToNode, reasonAttachPod
		status.Message = fmt.Sprintf("volume %s is on the node; the backup begins", name)
	case a != nil:
		status.Phase, status.Reason = v1.VolumeBound, reasonAttachPod
		status.Message = fmt.Sprintf("attachment pod %s is being started", a.pod.Name)
	default:
		status.Phase, status.Reason, status.Message = unattached(claimName, claim)
	}
	return []v1.VolumeStatus{status}
}

// aborting is what is said of the volume of a backup that is asked for no more, while there still is something of it.
func aborting(s *scope) []v1.VolumeStatus {
	for _, a := range s.attachments {
		if name := volume.Held(a.pod); writesBackup(s, name) {
			return []v1.VolumeStatus{{
				Name: name, Phase: v1.HotplugVolumeMounted, Reason: reasonDetaching, Message: "the backup is being aborted",
				HotplugVolume:             &v1.HotplugVolumeStatus{AttachPodName: a.pod.Name, AttachPodUID: a.pod.UID},
				PersistentVolumeClaimInfo: claimInfo(a.claim, nil),
			}}
		}
	}
	return nil
}
