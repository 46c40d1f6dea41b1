package populator

import (
	"context"
	"fmt"
	"maps"
	"strconv"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-vm/slipway/controllers/datavolume"
	"github.com/slipway-vm/slipway/internal/apply"
	"github.com/slipway-vm/slipway/internal/names"
	"github.com/slipway-vm/slipway/internal/population"
	"github.com/slipway-vm/slipway/internal/upload"
)

// notes computes the annotations that say on the claim what its population has reached. Of a claim
// that is filled in place, those that its filling itself writes are left out.
func notes(s *scope) map[string]string {
	n := map[string]string{}
	if s.chosen {
		n[population.AnnotationUse] = strconv.FormatBool(!s.inPlace)
		n[population.AnnotationFilledBy] = population.PrimeName(s.claim)
	}
	if s.refused {
		n[population.AnnotationRefused] = population.PrimeName(s.claim)
	}
	running(s, n)
	if s.kind == cdiv1.VolumeCloneSourceRef {
		n[annotationClonePhase] = clonePhase(s)
	}
	if s.whole {
		n[population.AnnotationProgress] = progressDone
	}
	if s.prime == nil {
		return n
	}
	spec := &s.prime.Spec
	n[datavolume.AnnotationContentType] = string(cdiv1.DataVolumeKubeVirt)
	if spec.ContentType != "" {
		n[datavolume.AnnotationContentType] = string(spec.ContentType)
	}
	if spec.Preallocation != nil {
		n[annotationPreallocation] = strconv.FormatBool(*spec.Preallocation)
	}
	switch {
	case s.whole:
	case s.phase() == cdiv1.Succeeded: // but the disk is not the claim's yet
		n[population.AnnotationProgress] = s.claim.Annotations[population.AnnotationProgress]
	default:
		n[population.AnnotationProgress] = string(s.prime.Status.Progress)
	}
	if !s.inPlace {
		record(s, n)
	}
	return n
}

// running says whether data flow, and if not, what is waited for.
func running(s *scope, n map[string]string) {
	n[annotationRunning] = "false"
	if s.waiting != nil {
		n[annotationRunningReason], n[datavolume.AnnotationFailure] = s.waiting.reason, s.waiting.message
		return
	}
	if s.prime == nil {
		return
	}
	for _, c := range s.prime.Status.Conditions {
		if c.Type == cdiv1.DataVolumeRunning {
			n[annotationRunning] = strconv.FormatBool(c.Status == corev1.ConditionTrue)
			n[annotationRunningReason] = c.Reason
			if !s.inPlace || c.Reason == datavolume.ReasonInUse || s.refusedImage(c.Reason) {
				n[datavolume.AnnotationFailure] = c.Message
			}
		}
	}
}

// refusedImage reports whether a claim that says so of its filling was sent what is of no use, and waits for another.
func (s *scope) refusedImage(reason string) bool {
	return reason == reasonError && s.phase() == cdiv1.UploadReady
}

// record adds what the filling of the other claim has reached.
func record(s *scope, n map[string]string) {
	if !s.whole {
		n[population.AnnotationPrime] = s.prime.Name
	}
	if s.other != nil && !s.whole {
		n[upload.AnnotationReady] = s.other.Annotations[upload.AnnotationReady]
	}
	n[datavolume.AnnotationRestarts] = strconv.Itoa(int(s.prime.Status.RestartCount))
	switch s.phase() {
	case cdiv1.ImportScheduled, cdiv1.UploadScheduled, cdiv1.CloneScheduled:
		n[datavolume.AnnotationPodPhase] = phasePending
	case cdiv1.ImportInProgress, cdiv1.UploadReady, cdiv1.CloneInProgress:
		n[datavolume.AnnotationPodPhase] = phaseRunning
	case cdiv1.Failed:
		n[datavolume.AnnotationPodPhase] = phaseFailed
	}
	if !s.whole {
		return
	}
	n[datavolume.AnnotationPodPhase] = phaseSucceeded
	n[annotationRunningReason] = reasonCompleted
	n[names.AnnotationDigest] = s.prime.Annotations[names.AnnotationDigest]
	n[annotationSelectedNode] = s.node
	if s.other != nil {
		n[datavolume.AnnotationPreallocated] = s.other.Annotations[datavolume.AnnotationPreallocated]
	}
	if source := s.prime.Spec.Source; source != nil && (source.PVC != nil || source.Snapshot != nil) {
		n[annotationCloneType] = string(cloneType(s, source))
	}
}

// cloneType is how the claim was cloned from source.
func cloneType(s *scope, source *cdiv1.DataVolumeSource) cdiv1.CDICloneStrategy {
	switch {
	case s.other != nil && s.other.Annotations[datavolume.AnnotationCopiedFrom] != "":
		return cdiv1.CloneStrategyHostAssisted
	case source.Snapshot != nil, s.other != nil && s.other.Annotations[datavolume.AnnotationSnapshotOf] != "":
		return cdiv1.CloneStrategySnapshot
	}
	return cdiv1.CloneStrategyCsiClone
}

// clonePhase is the phase of a clone, in the field's words for claims.
func clonePhase(s *scope) string {
	switch {
	case s.whole:
		return cloneSucceeded
	case s.phase() == cdiv1.Failed, s.waiting != nil && s.waiting.reason != reasonPending:
		return cloneError
	case s.phase() == cdiv1.CSICloneInProgress:
		return cloneVolume
	case s.phase() == cdiv1.SnapshotForSmartCloneInProgress:
		return cloneTaking
	case s.phase() == cdiv1.CloneFromSnapshotSourceInProgress:
		return cloneSnapshot
	case s.phase() == cdiv1.CloneScheduled, s.phase() == cdiv1.CloneInProgress:
		return cloneHost
	}
	return clonePending
}

// labels are those of the disk, which its source told the other claim, where the claim has none of the name.
func labels(s *scope) map[string]string {
	found := map[string]string{}
	if !s.whole || s.other == nil {
		return found
	}
	for name, value := range s.other.Labels {
		domain, _, _ := strings.Cut(name, "/")
		if _, set := s.claim.Labels[name]; !set && (domain == "kubevirt.io" || domain == "instancetype.kubevirt.io") {
			found[name] = value
		}
	}
	return found
}

// writeNotes writes what the pass has found, when it is new, and tells of it by events.
func (r *Reconciler) writeNotes(ctx context.Context, s *scope) error {
	if s.quiet {
		return nil
	}
	wanted, more := notes(s), labels(s)
	maps.DeleteFunc(wanted, func(_, value string) bool { return value == "" })
	if len(more) == 0 && same(s, wanted) {
		return nil
	}
	err := apply.Fields(ctx, r.Client, s.claim, manager, map[string]any{"metadata": map[string]any{"annotations": wanted, "labels": more}})
	if apierrors.IsNotFound(err) {
		return nil // gone since it was read
	}
	if err != nil {
		return fmt.Errorf("noting what claim %s has reached: %w", s.claim.Name, err)
	}
	r.tell(s, wanted)
	return nil
}

// same reports whether the claim says what is wanted, and no older thing beside.
func same(s *scope, wanted map[string]string) bool {
	have := s.claim.Annotations
	for name, value := range wanted {
		if have[name] != value {
			return false
		}
	}
	older := []string{population.AnnotationProgress, population.AnnotationPrime, population.AnnotationRefused, annotationRunningReason}
	if !s.inPlace { // else its filling may have written it
		older = append(older, datavolume.AnnotationFailure)
	}
	for _, name := range older {
		if _, keep := wanted[name]; have[name] != "" && !keep {
			return false
		}
	}
	return true
}

// tell emits the events of what changed with the notes.
func (r *Reconciler) tell(s *scope, now map[string]string) {
	before := r.told.swap(s.claim, now)
	changed := func(name string) bool { return before[name] != now[name] }
	words := wordsOf[s.kind]
	emit := func(kind, reason, format string, args ...any) {
		r.events.Eventf(s.claim, nil, kind, reason, eventAction, format, args...)
	}
	switch {
	case s.waiting != nil:
		kind := corev1.EventTypeWarning
		if s.waiting.reason == reasonPending {
			kind = corev1.EventTypeNormal
		}
		if changed(annotationRunningReason) || changed(datavolume.AnnotationFailure) {
			emit(kind, s.waiting.reason, "%s", s.waiting.message)
		}
	case now[annotationRunningReason] == datavolume.ReasonInUse:
		if changed(annotationRunningReason) || changed(datavolume.AnnotationFailure) {
			emit(corev1.EventTypeWarning, datavolume.ReasonInUse, "%s", now[datavolume.AnnotationFailure])
		}
	case s.whole && changed(population.AnnotationProgress):
		emit(corev1.EventTypeNormal, words.done, words.doneText, s.claim.Name)
	case s.refusedImage(now[annotationRunningReason]):
		if changed(annotationRunningReason) || changed(datavolume.AnnotationFailure) {
			emit(corev1.EventTypeWarning, words.failed, words.failedText, s.claim.Name, now[datavolume.AnnotationFailure])
		}
	case s.phase() == cdiv1.Failed && changed(annotationRunningReason):
		emit(corev1.EventTypeWarning, words.failed, words.failedText, s.claim.Name, s.failure())
	}
}

// wordsOf are the reasons and texts of events by the kind of the source, in the field's words.
var wordsOf = map[string]struct{ done, doneText, failed, failedText string }{
	cdiv1.VolumeImportSourceRef: {reasonImported, "Successfully imported into %s", reasonNotImported, "import into %s failed: %s"},
	cdiv1.VolumeUploadSourceRef: {reasonUploaded, "Successfully uploaded into %s", reasonNotUploaded, "Upload into %s failed: %s"},
	population.Target:           {reasonUploaded, "Successfully uploaded into %s", reasonNotUploaded, "Upload into %s failed: %s"},
	cdiv1.VolumeCloneSourceRef:  {reasonCloned, "Successfully cloned into %s", reasonNotCloned, "Cloning into %s failed: %s"},
}

// failure says why the DataVolume has failed.
func (s *scope) failure() string {
	for _, c := range s.prime.Status.Conditions {
		if c.Type == cdiv1.DataVolumeRunning {
			return c.Message
		}
	}
	return ""
}

// ledger remembers what was told last of each claim: the cache may still show an older one when the
// next pass begins, and nothing is told twice.
type ledger struct {
	mu   sync.Mutex
	last map[types.NamespacedName]entry
}

type entry struct {
	uid   types.UID
	notes map[string]string
}

// swap keeps notes as told, and returns what was told before: what claim shows when nothing was.
func (l *ledger) swap(claim *corev1.PersistentVolumeClaim, notes map[string]string) map[string]string {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.last == nil {
		l.last = map[types.NamespacedName]entry{}
	}
	key := client.ObjectKeyFromObject(claim)
	before, ok := l.last[key]
	l.last[key] = entry{claim.UID, notes}
	if !ok || before.uid != claim.UID {
		return claim.Annotations
	}
	return before.notes
}

func (l *ledger) forget(key types.NamespacedName) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.last, key)
}
