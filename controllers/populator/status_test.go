package populator

import (
	"maps"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"

	"github.com/slipway-vm/slipway/controllers/datavolume"
	"github.com/slipway-vm/slipway/internal/names"
	"github.com/slipway-vm/slipway/internal/population"
)

// ofImport is the scope of a claim whose import has a DataVolume in phase.
func ofImport(phase cdiv1.DataVolumePhase, change func(*scope)) *scope {
	s := &scope{claim: &corev1.PersistentVolumeClaim{}, kind: cdiv1.VolumeImportSourceRef, chosen: true}
	s.claim.UID = "1"
	s.prime = &cdiv1.DataVolume{}
	s.prime.Name, s.prime.Annotations = "prime-1", map[string]string{names.AnnotationDigest: "slipway1:00"}
	s.prime.Status = cdiv1.DataVolumeStatus{Phase: phase, Progress: "45.00%", Conditions: []cdiv1.DataVolumeCondition{
		{Type: cdiv1.DataVolumeRunning, Status: corev1.ConditionTrue, Reason: "Pod is running", Message: "words"},
	}}
	if change != nil {
		change(s)
	}
	return s
}

func TestNotesSayWhatAClaimHasReached(t *testing.T) {
	const (
		phase    = "cdi.kubevirt.io/storage.pod.phase"
		message  = "cdi.kubevirt.io/storage.condition.running.message"
		progress = population.AnnotationProgress
		clone    = annotationClonePhase
	)
	ofClone := func(s *scope) { s.kind = cdiv1.VolumeCloneSourceRef }
	for name, c := range map[string]struct {
		scope *scope
		want  map[string]string // empty: not there
	}{
		"it runs": {ofImport(cdiv1.ImportInProgress, nil), map[string]string{phase: "Running", progress: "45.00%", message: "words", population.AnnotationUse: "true", population.AnnotationPrime: "prime-1", clone: ""}},
		"what was sent is of no use": {ofImport(cdiv1.UploadReady, func(s *scope) {
			s.kind, s.inPlace = population.Target, true
			s.prime.Status.Conditions[0] = cdiv1.DataVolumeCondition{Type: cdiv1.DataVolumeRunning, Status: corev1.ConditionFalse, Reason: "Error", Message: "InvalidImage: words"}
		}), map[string]string{message: "InvalidImage: words", "cdi.kubevirt.io/storage.condition.running": "false"}},
		"it is scheduled": {ofImport(cdiv1.ImportScheduled, nil), map[string]string{phase: "Pending"}},
		"it failed":       {ofImport(cdiv1.Failed, nil), map[string]string{phase: "Failed", names.AnnotationDigest: ""}},
		"not handed over": {ofImport(cdiv1.Succeeded, nil), map[string]string{phase: "", progress: ""}},
		"handed over, its space reserved": {ofImport(cdiv1.Succeeded, func(s *scope) {
			s.whole, s.other = true, &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{datavolume.AnnotationPreallocated: "true"}}}
		}), map[string]string{phase: "Succeeded", datavolume.AnnotationPreallocated: "true"}},
		"handed over":            {ofImport(cdiv1.Succeeded, func(s *scope) { s.whole, s.node = true, "a" }), map[string]string{phase: "Succeeded", progress: "100.0%", names.AnnotationDigest: "slipway1:00", annotationSelectedNode: "a"}},
		"in place it runs":       {ofImport(cdiv1.ImportInProgress, func(s *scope) { s.inPlace = true }), map[string]string{phase: "", progress: "45.00%", message: "", population.AnnotationUse: "false", population.AnnotationPrime: "", annotationRunning: "true"}},
		"in place it ended":      {ofImport(cdiv1.Succeeded, func(s *scope) { s.inPlace, s.whole = true, true }), map[string]string{phase: "", progress: "100.0%", names.AnnotationDigest: ""}},
		"its maker is gone":      {ofImport(cdiv1.Succeeded, func(s *scope) { s.inPlace, s.whole, s.prime = true, true, nil }), map[string]string{progress: "100.0%"}},
		"it waits":               {ofImport("", func(s *scope) { s.prime, s.chosen, s.waiting = nil, false, &obstacle{"Pending", "for a class"} }), map[string]string{message: "for a class", annotationRunning: "false", population.AnnotationUse: ""}},
		"a clone runs":           {ofImport(cdiv1.CSICloneInProgress, ofClone), map[string]string{clone: "CSIClone", phase: ""}},
		"a snapshot is taken":    {ofImport(cdiv1.SnapshotForSmartCloneInProgress, ofClone), map[string]string{clone: "Snapshot", phase: ""}},
		"a snapshot is restored": {ofImport(cdiv1.CloneFromSnapshotSourceInProgress, ofClone), map[string]string{clone: "SnapshotClone"}},
		"a clone waits": {ofImport("", func(s *scope) {
			ofClone(s)
			s.prime, s.waiting = nil, &obstacle{"Pending", "for its source"}
		}), map[string]string{clone: "Pending"}},
		"a clone is refused": {ofImport("", func(s *scope) {
			ofClone(s)
			s.prime, s.waiting = nil, &obstacle{"NotSupported", "no driver"}
		}), map[string]string{clone: "Error"}},
		"a clone is done": {ofImport(cdiv1.Succeeded, func(s *scope) {
			ofClone(s)
			s.whole, s.prime.Spec.Source = true, &cdiv1.DataVolumeSource{Snapshot: &cdiv1.DataVolumeSourceSnapshot{}}
		}), map[string]string{clone: "Succeeded", annotationCloneType: "snapshot", phase: "Succeeded"}},
		"a clone through a snapshot is done": {ofImport(cdiv1.Succeeded, func(s *scope) {
			ofClone(s)
			s.whole, s.prime.Spec.Source = true, &cdiv1.DataVolumeSource{PVC: &cdiv1.DataVolumeSourcePVC{}}
			s.other = &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{datavolume.AnnotationSnapshotOf: "ns/base"}}}
		}), map[string]string{clone: "Succeeded", annotationCloneType: "snapshot"}},
		"a clone is copied":      {ofImport(cdiv1.CloneInProgress, ofClone), map[string]string{clone: "HostClone", phase: "Running"}},
		"a clone will be copied": {ofImport(cdiv1.CloneScheduled, ofClone), map[string]string{clone: "HostClone", phase: "Pending"}},
		"a clone that was copied is done": {ofImport(cdiv1.Succeeded, func(s *scope) {
			ofClone(s)
			s.whole, s.prime.Spec.Source = true, &cdiv1.DataVolumeSource{PVC: &cdiv1.DataVolumeSourcePVC{}}
			s.other = &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{datavolume.AnnotationCopiedFrom: "ns/base"}}}
		}), map[string]string{clone: "Succeeded", annotationCloneType: "copy"}},
	} {
		t.Run(name, func(t *testing.T) {
			got := notes(c.scope)
			for key, want := range c.want {
				if got[key] != want {
					t.Errorf("%s is %q, want %q", key, got[key], want)
				}
			}
		})
	}
}

func TestOnlyWhatChangedIsWritten(t *testing.T) {
	s := ofImport(cdiv1.ImportInProgress, nil)
	wanted := notes(s)
	s.claim.Annotations = maps.Clone(wanted)
	if !same(s, wanted) {
		t.Error("the same is written again")
	}
	delete(wanted, population.AnnotationProgress)
	if same(s, wanted) {
		t.Error("what is no longer so stays")
	}
}
