package vmi

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	v1 "kubevirt.io/api/core/v1"

	"github.com/slipway-vm/slipway/internal/metric"
	"github.com/slipway-vm/slipway/runtime/protocol"
)

// messageCrashed is the field's about a guest that ended by itself; the cause follows it, where it is known.
const messageCrashed = "The VirtualMachineInstance crashed."

// maxNote is how long the API server lets the note of an event be, in bytes; it refuses one that is longer.
const maxNote = 1024

// tellSignal tells that a launcher was just asked to end its guest, or that a pass failed.
func (r *Reconciler) tellSignal(s *scope) {
	switch {
	case s.signalled == v1.ShuttingDown:
		r.event(s.vmi, corev1.EventTypeNormal, v1.ShuttingDown, "Signaled Graceful Shutdown")
	case s.signalled == v1.Deleted:
		r.event(s.vmi, corev1.EventTypeNormal, v1.Deleted, "Signaled Deletion")
	case s.trouble != nil:
		r.event(s.vmi, corev1.EventTypeWarning, v1.SyncFailed, s.trouble.Error())
	}
}

// tellPhase tells of a phase that was just written, or of what a start was just written to wait for.
func (r *Reconciler) tellPhase(s *scope, before, after *runtimeStatus) {
	if before.Phase == after.Phase {
		if s.trouble == nil && waits(s.view.State) {
			r.event(s.vmi, corev1.EventTypeWarning, v1.SyncEvent(s.view.State.Reason), s.view.State.Message)
		}
		return
	}
	switch after.Phase {
	case v1.Running:
		r.event(s.vmi, corev1.EventTypeNormal, v1.Created, "VirtualMachineInstance defined.")
		r.event(s.vmi, corev1.EventTypeNormal, v1.Started, "VirtualMachineInstance started.")
	case v1.Succeeded:
		r.event(s.vmi, corev1.EventTypeNormal, v1.Stopped, "The VirtualMachineInstance was shut down.")
	case v1.Failed:
		if s.failure != nil && s.failure.reason == ReasonLivenessProbeFailed {
			r.event(s.vmi, corev1.EventTypeWarning, ReasonLivenessProbeFailed, s.failure.message)
			return
		}
		if s.failure == nil && s.view.State.Reason == ReasonGuestPanicked {
			metric.Panicked(s.vmi.Namespace, s.vmi.Name)
			r.event(s.vmi, corev1.EventTypeWarning, ReasonGuestPanicked, s.view.State.Message)
			return
		}
		if s.failure == nil && s.view.State.Phase == protocol.PhaseCrashed {
			r.event(s.vmi, corev1.EventTypeWarning, v1.Stopped, strings.TrimSpace(messageCrashed+" "+s.view.State.Message))
			return
		}
		condition := ready(s, after.Phase)
		r.event(s.vmi, corev1.EventTypeWarning, v1.SyncFailed, fmt.Sprintf("%s: %s", condition.Reason, condition.Message))
	}
}

// tellAccess tells what became of the access credentials, in the field's words.
func (r *Reconciler) tellAccess(s *scope, before, after *runtimeStatus) {
	kind := v1.VirtualMachineInstanceAccessCredentialsSynchronized
	old, now := before.condition(kind), after.condition(kind)
	switch {
	case now == nil || old != nil && old.Status == now.Status && old.Message == now.Message:
	case now.Status == corev1.ConditionTrue:
		r.event(s.vmi, corev1.EventTypeNormal, v1.AccessCredentialsSyncSuccess, "Access credentials sync successful.")
	default:
		r.event(s.vmi, corev1.EventTypeWarning, v1.AccessCredentialsSyncFailed, "Access credentials sync failed: "+now.Message)
	}
}

// tellDumps tells of dumps of the guest's memory that have ended.
func (r *Reconciler) tellDumps(s *scope, before, after *runtimeStatus) {
	for i := range after.VolumeStatus {
		now := &after.VolumeStatus[i]
		if !dumpOver(now) || dumpOver(before.volume(now.Name)) {
			continue
		}
		if now.Phase == v1.MemoryDumpVolumeFailed {
			r.event(s.vmi, corev1.EventTypeWarning, reasonDumpFailed, now.Message)
			continue
		}
		r.event(s.vmi, corev1.EventTypeNormal, reasonVolumeReady, now.Message)
	}
}

// tellFilesystems tells of folders that the guest has no access to any more.
func (r *Reconciler) tellFilesystems(s *scope, before, after *runtimeStatus) {
	for i := range after.VolumeStatus {
		now := &after.VolumeStatus[i]
		if old := before.volume(now.Name); now.Reason == reasonFilesystemLost && (old == nil || old.Reason != reasonFilesystemLost) {
			r.event(s.vmi, corev1.EventTypeWarning, reasonFilesystemLost, now.Message)
		}
	}
}

func (r *Reconciler) event(vmi *v1.VirtualMachineInstance, kind string, reason v1.SyncEvent, note string) {
	if len(note) > maxNote {
		note = strings.ToValidUTF8(note[:maxNote-len("…")], "") + "…"
	}
	r.Recorder.Eventf(vmi, nil, kind, string(reason), string(reason), "%s", note)
}
