package virtualmachinesnapshot

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	virtv1 "kubevirt.io/api/core/v1"
	snapshotv1 "kubevirt.io/api/snapshot/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-vm/slipway/internal/apply"
	"github.com/slipway-vm/slipway/internal/names"
)

// writeContentStatus writes what has become of the content's VolumeSnapshots.
func (r *Reconciler) writeContentStatus(ctx context.Context, s *scope) error {
	if s.content == nil || s.content.DeletionTimestamp != nil {
		return nil
	}
	before := &snapshotv1.VirtualMachineSnapshotContent{}
	if found, err := r.get(ctx, client.ObjectKeyFromObject(s.content), before); err != nil || !found {
		return err
	}
	wanted := contentStatus(s)
	if before.Status != nil && equality.Semantic.DeepEqual(wanted, *before.Status) {
		return nil
	}
	for _, backup := range s.content.Spec.VolumeBackups {
		if name := *backup.VolumeSnapshotName; made(before) && s.volumes[name] == nil {
			r.warning(s, reasonMissing, "VolumeSnapshot %s no longer exists", name)
		}
	}
	err := apply.Status(ctx, r.Client, s.content, names.ManagerController, wanted)
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err == nil {
		s.content.Status = &wanted
	}
	return err
}

// contentStatus computes the content's status.
func contentStatus(s *scope) snapshotv1.VirtualMachineSnapshotContentStatus {
	old := ptr.Deref(s.content.Status, snapshotv1.VirtualMachineSnapshotContentStatus{})
	status := snapshotv1.VirtualMachineSnapshotContentStatus{CreationTime: old.CreationTime}
	var missing []string
	all, message := true, ""
	for _, backup := range s.content.Spec.VolumeBackups {
		name := *backup.VolumeSnapshotName
		snapshot := s.volumes[name]
		if snapshot == nil {
			missing = append(missing, name)
			continue
		}
		of := snapshotv1.VolumeSnapshotStatus{VolumeSnapshotName: name}
		if known := snapshot.Status; known != nil {
			of.ReadyToUse, of.CreationTime = known.ReadyToUse, known.CreationTime
			if known.Error != nil {
				of.Error = &snapshotv1.Error{Time: known.Error.Time, Message: known.Error.Message}
			}
		}
		all = all && ptr.Deref(of.ReadyToUse, false)
		if of.Error != nil && !ptr.Deref(of.ReadyToUse, false) {
			message = fmt.Sprintf("VolumeSnapshot %s error: %s", name, ptr.Deref(of.Error.Message, ""))
		}
		status.VolumeSnapshotStatus = append(status.VolumeSnapshotStatus, of)
	}
	if len(missing) > 0 {
		all = false
		if status.CreationTime != nil {
			message = fmt.Sprintf("VolumeSnapshots (%s) missing", strings.Join(missing, ","))
		}
	}
	if s.problem != nil {
		all, message = false, s.problem.message
	}
	status.ReadyToUse = new(all && status.CreationTime != nil)
	status.Error = errorOf(message, old.Error, s)
	return status
}

// errorOf is message as an error, with the time at which it was first said.
func errorOf(message string, old *snapshotv1.Error, s *scope) *snapshotv1.Error {
	switch {
	case message == "":
		return nil
	case old != nil && ptr.Deref(old.Message, "") == message:
		return old
	}
	return &snapshotv1.Error{Time: new(metav1.NewTime(s.now).Rfc3339Copy()), Message: &message}
}

// announce says, before any disk is taken, that the snapshot is being taken and how the VM is meanwhile.
func (r *Reconciler) announce(ctx context.Context, s *scope) error { return r.writeStatus(ctx, s) }

// writeStatus writes the snapshot's status when it has changed.
func (r *Reconciler) writeStatus(ctx context.Context, s *scope) error {
	wanted := newStatus(s)
	if s.snapshot.Status != nil && equality.Semantic.DeepEqual(wanted, *s.snapshot.Status) {
		return nil
	}
	err := apply.Status(ctx, r.Client, s.snapshot, names.ManagerController, wanted)
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err == nil {
		s.snapshot.Status = &wanted
	}
	return err
}

// newStatus computes the snapshot's status from what the pass knows.
func newStatus(s *scope) snapshotv1.VirtualMachineSnapshotStatus {
	old := status(s.snapshot)
	wanted := snapshotv1.VirtualMachineSnapshotStatus{
		SourceUID: old.SourceUID, VirtualMachineSnapshotContentName: old.VirtualMachineSnapshotContentName, CreationTime: old.CreationTime,
		SourceIndications: indicated(s, old.SourceIndications), SnapshotVolumes: old.SnapshotVolumes, ReadyToUse: new(false),
	}
	wanted.Indications = namesOf(wanted.SourceIndications) //nolint:staticcheck // clients read it still
	if s.vm != nil && wanted.SourceUID == nil && (s.locked() || s.succeeded()) {
		wanted.SourceUID = &s.vm.UID
	}
	contained(s, &wanted)
	if s.problem != nil {
		wanted.Error = errorOf(s.problem.message, old.Error, s)
	}
	var progressing snapshotv1.Condition
	wanted.Phase, progressing = phase(s)
	if wanted.Phase == snapshotv1.Failed {
		wanted.ReadyToUse = new(false)
		failure := condition(snapshotv1.ConditionFailure, true, deadlineExceeded)
		failure.Message = lastObstacle(&old)
		wanted.Conditions = append(wanted.Conditions, failure)
	}
	if wanted.Error != nil && wanted.Phase != snapshotv1.Failed {
		progressing = condition(snapshotv1.ConditionProgressing, false, inError)
		progressing.Message = *wanted.Error.Message
	}
	isReady := condition(snapshotv1.ConditionReady, false, notReady)
	if *wanted.ReadyToUse {
		isReady = condition(snapshotv1.ConditionReady, true, ready)
	}
	wanted.Conditions = dated(append(wanted.Conditions, progressing, isReady), old.Conditions, metav1.NewTime(s.now).Rfc3339Copy())
	return wanted
}

// lastObstacle is what stood in the way of a snapshot that has failed, "" where nothing was known of.
func lastObstacle(old *snapshotv1.VirtualMachineSnapshotStatus) string {
	obstacle := ""
	if old.Error != nil {
		obstacle = ptr.Deref(old.Error.Message, "")
	}
	for _, c := range old.Conditions {
		switch {
		case c.Type == snapshotv1.ConditionFailure:
			return c.Message
		case c.Type == snapshotv1.ConditionProgressing && c.Status == corev1.ConditionFalse && c.Reason != inError:
			obstacle = c.Reason
		}
	}
	return obstacle
}

// contained takes over what is known of the content.
func contained(s *scope, wanted *snapshotv1.VirtualMachineSnapshotStatus) {
	if s.content != nil && s.content.Status != nil && s.content.DeletionTimestamp == nil {
		wanted.VirtualMachineSnapshotContentName = &s.content.Name
		wanted.CreationTime, wanted.ReadyToUse, wanted.Error = s.content.Status.CreationTime, s.content.Status.ReadyToUse, s.content.Status.Error
	}
	if made(s.content) {
		wanted.SnapshotVolumes = volumesOf(s.content)
	}
}

// phase is how far the snapshot is, in a word and as a condition.
func phase(s *scope) (snapshotv1.VirtualMachineSnapshotPhase, snapshotv1.Condition) {
	const kind = snapshotv1.ConditionProgressing
	switch {
	case s.expired():
		return snapshotv1.Failed, condition(kind, false, failed)
	case s.succeeded():
		return snapshotv1.Succeeded, condition(kind, false, complete)
	case s.vm == nil:
		return snapshotv1.InProgress, condition(kind, false, noSource)
	case s.locked():
		return snapshotv1.InProgress, condition(kind, true, locked)
	case s.blocked != "":
		return snapshotv1.InProgress, condition(kind, false, notLocked+" "+s.blocked)
	}
	return snapshotv1.InProgress, condition(kind, false, notLocked)
}

// indicated adds to what was said of a snapshot while it was taken; nothing is taken back.
func indicated(s *scope, said []snapshotv1.SourceIndication) []snapshotv1.SourceIndication {
	all := map[snapshotv1.Indication]bool{}
	for _, indication := range said {
		all[indication.Indication] = true
	}
	if s.vmi != nil && s.locked() && !s.succeeded() && !s.expired() {
		all[snapshotv1.VMSnapshotOnlineSnapshotIndication] = true
		switch {
		case s.quiesced():
			all[snapshotv1.VMSnapshotGuestAgentIndication] = true
		case s.has(virtv1.VirtualMachineInstancePaused):
			all[snapshotv1.VMSnapshotPausedIndication] = true
		default:
			all[snapshotv1.VMSnapshotNoGuestAgentIndication] = true
		}
	}
	if s.cut {
		all[snapshotv1.VMSnapshotQuiesceTimeoutIndication] = true
	}
	var found []snapshotv1.SourceIndication
	for _, indication := range slices.Sorted(maps.Keys(all)) {
		found = append(found, snapshotv1.SourceIndication{Indication: indication, Message: indications[indication]})
	}
	return found
}

func namesOf(said []snapshotv1.SourceIndication) []snapshotv1.Indication {
	var names []snapshotv1.Indication
	for _, indication := range said {
		names = append(names, indication.Indication)
	}
	return names
}

// volumesOf says which of the VM's volumes are in the content.
func volumesOf(content *snapshotv1.VirtualMachineSnapshotContent) *snapshotv1.SnapshotVolumesLists {
	machine := content.Spec.Source.VirtualMachine
	if machine == nil || machine.Spec.Template == nil {
		return nil
	}
	lists := &snapshotv1.SnapshotVolumesLists{}
	for _, volume := range machine.Spec.Template.Spec.Volumes {
		taken := slices.ContainsFunc(content.Spec.VolumeBackups, func(b snapshotv1.VolumeBackup) bool { return b.VolumeName == volume.Name })
		if taken {
			lists.IncludedVolumes = append(lists.IncludedVolumes, volume.Name)
		} else {
			lists.ExcludedVolumes = append(lists.ExcludedVolumes, volume.Name)
		}
	}
	if state := StateOf(content); state != nil {
		lists.IncludedVolumes = append(lists.IncludedVolumes, state.VolumeName)
	} else if content.Annotations[annotationStateLeft] != "" {
		lists.ExcludedVolumes = append(lists.ExcludedVolumes, StateVolume(machine.Name))
	}
	return lists
}

func condition(kind snapshotv1.ConditionType, holds bool, reason string) snapshotv1.Condition {
	c := snapshotv1.Condition{Type: kind, Status: corev1.ConditionFalse, Reason: reason}
	if holds {
		c.Status = corev1.ConditionTrue
	}
	return c
}

// dated gives conditions the times of their last changes.
func dated(conditions, old []snapshotv1.Condition, now metav1.Time) []snapshotv1.Condition {
	for i := range conditions {
		c := &conditions[i]
		c.LastTransitionTime = now
		for _, before := range old {
			if before.Type == c.Type && before.Status == c.Status {
				c.LastTransitionTime = before.LastTransitionTime
			}
		}
	}
	return conditions
}
