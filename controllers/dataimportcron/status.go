package dataimportcron

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"

	"github.com/slipway-vm/slipway/internal/apply"
)

// writeStatus writes what the pass has found, onto the object itself: the kind has no status subresource. It answers
// Conflict when somebody has written the object since it was read: a pass with an old cache knows an older image.
func (r *Reconciler) writeStatus(ctx context.Context, s *scope) error {
	status := newStatus(s, metav1.NewTime(r.now().Truncate(time.Second)))
	notes := annotations(s)
	if equality.Semantic.DeepEqual(status, s.cron.Status) && noted(s.cron, notes) {
		return nil
	}
	meta := map[string]any{"annotations": notes, "resourceVersion": s.cron.ResourceVersion}
	err := apply.Fields(ctx, r.Client, s.cron, manager, map[string]any{"status": status, "metadata": meta})
	if apierrors.IsNotFound(err) {
		return nil // gone meanwhile
	}
	if err != nil {
		return fmt.Errorf("writing what DataImportCron %s has reached: %w", s.cron.Name, err)
	}
	before := condition(s.cron.Status.Conditions, cdiv1.DataImportCronUpToDate)
	if s.rival != "" && (before == nil || before.Reason != reasonManaged) {
		r.events.Eventf(s.cron, nil, corev1.EventTypeWarning, reasonManaged, eventAction, "%s", managed(s))
	}
	if s.unauthorized != "" && (before == nil || before.Reason != reasonDenied) {
		r.events.Eventf(s.cron, nil, corev1.EventTypeWarning, reasonDenied, eventAction, "%s", s.unauthorized)
	}
	return nil
}

// annotations are what is noted on a DataImportCron beside its status.
func annotations(s *scope) map[string]string {
	notes := map[string]string{}
	if s.digest != "" {
		notes[AnnotationDesired] = s.digest
	}
	if s.at != "" {
		notes[AnnotationStreamImage] = s.at
	}
	for name, at := range map[string]time.Time{AnnotationLastPoll: s.lastPoll, AnnotationNextPoll: s.nextPoll} {
		if !at.IsZero() {
			notes[name] = at.UTC().Format(time.RFC3339)
		}
	}
	return notes
}

func noted(cron *cdiv1.DataImportCron, notes map[string]string) bool {
	for name, value := range notes {
		if cron.Annotations[name] != value {
			return false
		}
	}
	return true
}

// newStatus computes a DataImportCron's status from what a pass has found.
func newStatus(s *scope, now metav1.Time) cdiv1.DataImportCronStatus {
	before := s.cron.Status
	status := cdiv1.DataImportCronStatus{
		LastImportedPVC: s.last, LastImportTimestamp: before.LastImportTimestamp,
		LastExecutionTimestamp: before.LastExecutionTimestamp, SourceFormat: before.SourceFormat,
	}
	if s.current != nil {
		status.CurrentImports = []cdiv1.ImportStatus{*s.current}
	}
	if s.last != nil {
		status.SourceFormat = new(s.lastFormat)
		if before.LastImportedPVC == nil || *before.LastImportedPVC != *s.last {
			status.LastImportTimestamp = &now
		}
	}
	if !s.lastPoll.IsZero() {
		status.LastExecutionTimestamp = &metav1.Time{Time: s.lastPoll}
	}
	status.Conditions = []cdiv1.DataImportCronCondition{
		{Type: cdiv1.DataImportCronProgressing, ConditionState: progressing(s)},
		{Type: cdiv1.DataImportCronUpToDate, ConditionState: upToDate(s)},
	}
	stamp(status.Conditions, before.Conditions, now)
	return status
}

// progressing says whether an image is being imported.
func progressing(s *scope) cdiv1.ConditionState {
	idle := s.current == nil || s.imported() || s.dv == nil && !s.filled()
	switch {
	case idle && s.unauthorized != "":
		return state(false, reasonDenied, "Not authorized to create DataVolume")
	case idle:
		return state(false, reasonNoImport, "No current import")
	case s.filled():
		return state(s.unkept == "", reasonProgress, snapshotProgress)
	}
	switch phase := s.dv.Status.Phase; phase {
	case cdiv1.ImportScheduled:
		return state(false, reasonScheduled, "Import is scheduled")
	case cdiv1.ImportInProgress:
		return state(true, reasonProgress, "Import is progressing")
	case "":
		return state(false, string(cdiv1.Pending), "Import DataVolume was created")
	default:
		return state(false, string(phase), fmt.Sprintf("Import DataVolume phase %s", phase))
	}
}

// upToDate says whether the last image is imported, and if not, why.
func upToDate(s *scope) cdiv1.ConditionState {
	switch {
	case s.rival != "":
		return state(false, reasonManaged, managed(s)+"; name another DataSource")
	case s.taken != "":
		return state(false, reasonTaken, s.taken)
	case s.unauthorized != "":
		return state(false, reasonDenied, s.unauthorized)
	case s.digest == "" && s.unknown != "":
		return state(false, reasonNoDigest, "No source digest: "+s.unknown)
	case s.digest == "" && s.cron.Spec.Schedule == "":
		return state(false, reasonNoDigest, "No source digest, and no schedule to look for it; set annotation "+AnnotationDesired)
	case s.digest == "":
		return state(false, reasonNoDigest, "No source digest")
	case s.unkept != "":
		return state(false, reasonUnkept, s.unkept)
	case s.outdated():
		return state(false, reasonOutdated, "Source digest updated since last import")
	case s.imported():
		return state(true, reasonUpToDate, "Latest import is up to date")
	case s.filled():
		return state(false, reasonProgress, snapshotProgress)
	case s.dv != nil && s.dv.Status.Phase == cdiv1.Failed:
		return state(false, reasonFailed, fmt.Sprintf("Import DataVolume %s failed: %s; %s", s.dv.Name, failureOf(s.dv), nextTry(s.cron)))
	}
	return state(false, reasonProgress, "Import is progressing"+hindrance(s.dv))
}

// nextTry says when an import is tried again that has failed.
func nextTry(cron *cdiv1.DataImportCron) string {
	if cron.Spec.Schedule == "" {
		return "nothing is polled without a schedule, so delete it to have it tried again"
	}
	return "it is tried again at the next poll"
}

// hindrance is what an import that goes on is hindered by, empty when nothing is known of that.
func hindrance(dv *cdiv1.DataVolume) string {
	if dv == nil {
		return ""
	}
	for _, c := range dv.Status.Conditions {
		tries := c.Type == cdiv1.DataVolumeRunning && erroneous(dv)
		waits := c.Type == cdiv1.DataVolumeBound && dv.Status.Phase == cdiv1.Pending && c.Reason != "NotFound" // it is yet to be made
		if (tries || waits) && c.Status == corev1.ConditionFalse && c.Message != "" {
			return fmt.Sprintf("; DataVolume %s: %s", dv.Name, c.Message)
		}
	}
	return ""
}

// snapshotProgress is said of an import that has ended, while the snapshot of it is not ready.
const snapshotProgress = "Snapshot of imported data is progressing"

func managed(s *scope) string {
	return fmt.Sprintf("DataSource %s is already managed by DataImportCron %s", s.cron.Spec.ManagedDataSource, s.rival)
}

// failureOf is why a DataVolume failed.
func failureOf(dv *cdiv1.DataVolume) string {
	for _, c := range dv.Status.Conditions {
		if c.Type == cdiv1.DataVolumeRunning {
			return c.Message
		}
	}
	return "it does not say why"
}

func state(yes bool, reason, message string) cdiv1.ConditionState {
	status := corev1.ConditionFalse
	if yes {
		status = corev1.ConditionTrue
	}
	return cdiv1.ConditionState{Status: status, Reason: reason, Message: message}
}

// stamp sets the times of conditions: a condition that says the same as before keeps them.
func stamp(conditions, before []cdiv1.DataImportCronCondition, now metav1.Time) {
	for n := range conditions {
		c := &conditions[n]
		c.LastTransitionTime, c.LastHeartbeatTime = now, now
		old := condition(before, c.Type)
		if old == nil || old.Status != c.Status {
			continue
		}
		c.LastTransitionTime = old.LastTransitionTime
		if old.Reason == c.Reason && old.Message == c.Message {
			c.LastHeartbeatTime = old.LastHeartbeatTime
		}
	}
}

func condition(conditions []cdiv1.DataImportCronCondition, kind cdiv1.DataImportCronConditionType) *cdiv1.DataImportCronCondition {
	for n := range conditions {
		if conditions[n].Type == kind {
			return &conditions[n]
		}
	}
	return nil
}
