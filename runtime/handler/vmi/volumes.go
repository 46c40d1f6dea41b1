package vmi

import (
	"cmp"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	v1 "kubevirt.io/api/core/v1"

	"github.com/slipway-vm/slipway/runtime/protocol"
	"github.com/slipway-vm/slipway/runtime/volume"
)

// Reasons of the status of volumes that came late, in the field's words.
const (
	reasonVolumeReady     = "VolumeReady"
	reasonVolumeUnmounted = "VolumeUnMountedFromPod"
	reasonPVCNotReady     = "PVCNotReady"
	reasonPVCNotFound     = "FailedPvcNotFound"
	reasonAttachPod       = "SuccessfulCreate"
	reasonPlugFailed      = "FailedAttach"   // ours
	reasonDetaching       = "Detaching"      // ours
	reasonFilesystemLost  = "FilesystemLost" // ours, and of the event
)

// volumeStatus is what is said of the VMI's volumes: of those that the domain has had from
// its start, then of those that came late, then of those on their way out.
func volumeStatus(s *scope) []v1.VolumeStatus {
	var early []protocol.Disk
	for _, disk := range s.view.State.Disks {
		if disk.Claim == "" && !disk.Leaving {
			early = append(early, disk)
		}
	}
	all := volume.Status(s.vmi, early, keptWhole(s))
	told := map[string]bool{}
	for _, one := range all {
		told[one.Name] = true
	}
	claims := volume.Claims(s.vmi)
	for _, one := range s.view.State.Filesystems {
		all = append(all, filesystemStatus(one, claims[one.Volume]))
		told[one.Volume] = true
	}
	for _, one := range s.vmi.Spec.Volumes {
		if claims[one.Name] != "" && !told[one.Name] && s.pod != nil && hasDisk(s.vmi, one.Name) {
			all = append(all, lateStatus(s, one.Name, claims[one.Name]))
			told[one.Name] = true
		}
	}
	for _, disk := range s.view.State.Disks {
		if !told[disk.Volume] {
			all = append(all, leavingStatus(s, disk))
			told[disk.Volume] = true
		}
	}
	all = append(all, dumpStatuses(s)...)
	all = append(all, backupTargets(s)...)
	return append(all, releasedStatus(s)...)
}

// filesystemStatus is that of a volume which the guest mounts: like that of a disk, until nobody serves it any more.
func filesystemStatus(one protocol.Filesystem, claimName string) v1.VolumeStatus {
	status := v1.VolumeStatus{Name: one.Volume, Message: one.Message}
	if claimName != "" {
		status.PersistentVolumeClaimInfo = claimInfo(claimName, nil)
	}
	if one.Message != "" {
		status.Reason = reasonFilesystemLost
	}
	return status
}

// keptWhole are the volumes from the start whose claims keep all of their size.
func keptWhole(s *scope) []string {
	if s.view.Synced == nil {
		return nil
	}
	return s.view.Synced.Facts.Preallocated
}

// lateStatus is that of a volume that came while the guest ran.
func lateStatus(s *scope, name, claimName string) v1.VolumeStatus {
	disk := diskOf(s, name)
	if disk != nil && (disk.Leaving || disk.Claim != "" && disk.Claim != claimName) {
		return leavingStatus(s, *disk)
	}
	claim := s.claims[name]
	status := v1.VolumeStatus{Name: name, PersistentVolumeClaimInfo: claimInfo(claimName, claim)}
	a := attachmentOf(s, name, claimName)
	if a != nil {
		status.HotplugVolume = &v1.HotplugVolumeStatus{AttachPodName: a.pod.Name, AttachPodUID: a.pod.UID}
	}
	switch {
	case disk != nil:
		status.Phase, status.Reason, status.Target, status.Size = v1.VolumeReady, reasonVolumeReady, disk.Target, disk.Size
		status.Message = fmt.Sprintf("Successfully attach hotplugged volume %s to VM", name)
		return status
	case a != nil && a.holds():
		status.Phase, status.Reason = v1.HotplugVolumeAttachedToNode, reasonAttachPod
		status.Message = fmt.Sprintf("volume %s is on the node; the guest gets its disk", name)
	case a != nil:
		status.Phase, status.Reason = v1.VolumeBound, reasonAttachPod
		status.Message = fmt.Sprintf("attachment pod %s is being started", a.pod.Name)
	default:
		status.Phase, status.Reason, status.Message = unattached(claimName, claim)
	}
	if message := s.plugErrors[name]; message != "" {
		status.Reason, status.Message = reasonPlugFailed, message
	}
	return status
}

// unattached says what a volume without an attachment pod waits for.
func unattached(name string, claim *corev1.PersistentVolumeClaim) (phase v1.VolumePhase, reason, message string) {
	switch {
	case claim == nil:
		return v1.VolumePending, reasonPVCNotFound, fmt.Sprintf("PVC %s not found", name)
	case claim.Status.Phase != corev1.ClaimBound:
		return v1.VolumePending, reasonPVCNotReady, fmt.Sprintf("PVC is in phase %s", claim.Status.Phase)
	}
	return v1.VolumeBound, reasonPVCNotReady, fmt.Sprintf("PVC is in phase %s", claim.Status.Phase)
}

// leavingStatus is that of a disk which the guest is to let go of.
func leavingStatus(s *scope, disk protocol.Disk) v1.VolumeStatus {
	status := v1.VolumeStatus{
		Name: disk.Volume, Target: disk.Target, Size: disk.Size, Phase: v1.HotplugVolumeDetaching, Reason: reasonDetaching,
		Message: cmp.Or(s.plugErrors[disk.Volume], disk.Message),
	}
	if disk.Claim != "" {
		status.PersistentVolumeClaimInfo = claimInfo(disk.Claim, nil)
	}
	if a := attachmentOf(s, disk.Volume, disk.Claim); a != nil {
		status.HotplugVolume = &v1.HotplugVolumeStatus{AttachPodName: a.pod.Name, AttachPodUID: a.pod.UID}
	}
	return status
}

// releasedStatus lists the attachment pods whose disks the guest has not, and will not get:
// virt-controller takes them away, and with them goes their hold on the claim. It says so
// only while the launcher is there to have told what it has, or where it was said before.
func releasedStatus(s *scope) []v1.VolumeStatus {
	var all []v1.VolumeStatus
	for _, a := range s.attachments {
		name := volume.Held(a.pod)
		if !a.released && (!s.pluggable || needed(s, a)) {
			continue
		}
		all = append(all, v1.VolumeStatus{
			Name: name, Phase: v1.HotplugVolumeUnMounted, Reason: reasonVolumeUnmounted,
			Message:                   fmt.Sprintf("Volume %s has been unmounted from virt-launcher pod", name),
			HotplugVolume:             &v1.HotplugVolumeStatus{AttachPodName: a.pod.Name, AttachPodUID: a.pod.UID},
			PersistentVolumeClaimInfo: claimInfo(a.claim, nil),
		})
	}
	return all
}

// needed says whether the guest has a disk from what a holds, or is to get one, or its memory is
// dumped to it, or its disks are backed up.
func needed(s *scope, a attachment) bool {
	name := volume.Held(a.pod)
	if disk := diskOf(s, name); disk != nil && (disk.Claim == a.claim || disk.Claim == "") {
		return true
	}
	if volume.DumpClaims(s.vmi)[name] == a.claim || dumpGoesOn(s, name) || writesBackup(s, name) {
		return true
	}
	return volume.Claims(s.vmi)[name] == a.claim
}

// attachmentOf is the pod that holds the volume's claim: one whose volume is there before one that
// only begins, nil for none.
func attachmentOf(s *scope, name, claimName string) *attachment {
	var found *attachment
	for i := range s.attachments {
		a := &s.attachments[i]
		if volume.Held(a.pod) != name || a.claim != claimName || a.released || a.pod.DeletionTimestamp != nil {
			continue
		}
		if found == nil || a.holds() && !found.holds() {
			found = a
		}
	}
	return found
}

// cameLate says whether status is of a volume that is held by a pod of its own.
func cameLate(status v1.VolumeStatus) bool { return status.HotplugVolume != nil }

func hasDisk(vmi *v1.VirtualMachineInstance, name string) bool {
	return slices.ContainsFunc(vmi.Spec.Domain.Devices.Disks, func(disk v1.Disk) bool { return disk.Name == name })
}

func diskOf(s *scope, name string) *protocol.Disk {
	disks := s.view.State.Disks
	if i := slices.IndexFunc(disks, func(disk protocol.Disk) bool { return disk.Volume == name }); i >= 0 {
		return &disks[i]
	}
	return nil
}

func claimInfo(name string, claim *corev1.PersistentVolumeClaim) *v1.PersistentVolumeClaimInfo {
	info := &v1.PersistentVolumeClaimInfo{ClaimName: name}
	if claim != nil {
		info.AccessModes, info.VolumeMode = claim.Spec.AccessModes, claim.Spec.VolumeMode
		info.Capacity, info.Requests = claim.Status.Capacity, claim.Spec.Resources.Requests
		info.Preallocated = volume.Preallocated(claim)
	}
	return info
}
