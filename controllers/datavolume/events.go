package datavolume

import (
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
)

// phaseEvents are told when a phase begins: the event's reason and text, in the field's words.
var phaseEvents = map[cdiv1.DataVolumePhase]struct{ reason, text string }{
	cdiv1.ImportScheduled:                   {"ImportScheduled", "Import into %s scheduled"},
	cdiv1.ImportInProgress:                  {"ImportInProgress", "Import into %s in progress"},
	cdiv1.UploadScheduled:                   {"UploadScheduled", "Upload into %s scheduled"},
	cdiv1.UploadReady:                       {"UploadReady", "Upload into %s ready"},
	cdiv1.CloneScheduled:                    {"CloneScheduled", "Cloning into %s scheduled"},
	cdiv1.CloneInProgress:                   {"CloneInProgress", "Cloning into %s in progress"},
	cdiv1.CSICloneInProgress:                {"CSICloneInProgress", "CSI Volume clone in progress (for pvc %s)"},
	cdiv1.SnapshotForSmartCloneInProgress:   {"SnapshotForSmartCloneInProgress", "Snapshot to clone into %s in progress"},
	cdiv1.RebindInProgress:                  {"RebindInProgress", "Handing the clone's volume over to %s"},
	cdiv1.CloneFromSnapshotSourceInProgress: {"CloneFromSnapshotSourceInProgress", "Clone from a snapshot into %s in progress"},
}

// tell emits the events of what changed with status.
func (r *Reconciler) tell(s *scope, status cdiv1.DataVolumeStatus) {
	old := r.told.swap(s.dv, status)
	claim := claimName(s.dv)
	if bound := condition(status.Conditions, cdiv1.DataVolumeBound); changed(old, bound) && bound.Reason != "" {
		kind := corev1.EventTypeNormal
		if bound.Reason == reasonExists || bound.Reason == reasonClaimNotValid || bound.Reason == reasonExceededQuota {
			kind = corev1.EventTypeWarning
		}
		r.events.Eventf(s.dv, nil, kind, bound.Reason, eventAction, "%s", bound.Message)
	}
	running := condition(status.Conditions, cdiv1.DataVolumeRunning)
	if (running.Reason == reasonError || running.Reason == reasonSourceInUse) && changed(old, running) {
		r.events.Eventf(s.dv, nil, corev1.EventTypeWarning, running.Reason, eventAction, "%s", running.Message)
	}
	if status.Phase == old.Phase {
		return
	}
	if event, ok := phaseEvents[status.Phase]; ok {
		r.events.Eventf(s.dv, nil, corev1.EventTypeNormal, event.reason, eventAction, event.text, claim)
	}
	words := endOf(s.plan.kind)
	switch status.Phase {
	case cdiv1.Succeeded:
		r.events.Eventf(s.dv, nil, corev1.EventTypeNormal, words.work+"Succeeded", eventAction, words.succeeded, claim)
	case cdiv1.Failed:
		r.events.Eventf(s.dv, nil, corev1.EventTypeWarning, words.work+"Failed", eventAction, words.failed+": %s", claim, running.Message)
	}
}

// ending is how the end of a DataVolume's work is told: what begins the event's reason, and the texts.
type ending struct{ work, succeeded, failed string }

func endOf(what kind) ending {
	switch what {
	case kindClone, kindCopy:
		return ending{"Clone", "Successfully cloned into %s", "Cloning into %s failed"}
	case kindUpload:
		return ending{"Upload", "Successfully uploaded into %s", "Upload into %s failed"}
	}
	return ending{"Import", "Successfully imported into PVC %s", "Failed to import into PVC %s"}
}

// changed reports whether condition says another thing than it did in old.
func changed(old cdiv1.DataVolumeStatus, now *cdiv1.DataVolumeCondition) bool {
	before := condition(old.Conditions, now.Type)
	return before == nil || before.Reason != now.Reason || before.Message != now.Message
}

// ledger remembers what was told last of each DataVolume: the cache may still show an
// older status when the next pass begins, and nothing is told twice.
type ledger struct {
	mu   sync.Mutex
	last map[types.NamespacedName]entry
}

type entry struct {
	uid    types.UID
	status cdiv1.DataVolumeStatus
}

// swap notes status as told, and returns what was told before: what dv shows when nothing was.
func (l *ledger) swap(dv *cdiv1.DataVolume, status cdiv1.DataVolumeStatus) cdiv1.DataVolumeStatus {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.last == nil {
		l.last = map[types.NamespacedName]entry{}
	}
	key := types.NamespacedName{Namespace: dv.Namespace, Name: dv.Name}
	before, ok := l.last[key]
	l.last[key] = entry{dv.UID, status}
	if !ok || before.uid != dv.UID {
		return dv.Status
	}
	return before.status
}

func (l *ledger) forget(key types.NamespacedName) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.last, key)
}
