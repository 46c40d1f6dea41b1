package datavolume

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"

	"github.com/slipway-vm/slipway/controllers/progress"
)

// importing is the status of an import that is under way, changed.
func importing(change func(*cdiv1.DataVolumeStatus)) cdiv1.DataVolumeStatus {
	status := cdiv1.DataVolumeStatus{Phase: cdiv1.ImportInProgress, ClaimName: "disk", Progress: "N/A", Conditions: []cdiv1.DataVolumeCondition{
		{Type: cdiv1.DataVolumeBound, Status: corev1.ConditionFalse, Reason: reasonPending},
		{Type: cdiv1.DataVolumeRunning, Status: corev1.ConditionTrue, Reason: reasonPodRunning},
	}}
	if change != nil {
		change(&status)
	}
	return status
}

func TestWhatIsWrittenAtOnceAndWhatWaits(t *testing.T) {
	began := time.Unix(1_800_000_000, 0)
	bound := func(s *cdiv1.DataVolumeStatus) {
		s.Conditions[0].Status, s.Conditions[0].Reason = corev1.ConditionTrue, reasonBound
	}
	half := func(s *cdiv1.DataVolumeStatus) { s.Progress = "50.00%" }
	for name, c := range map[string]struct {
		change func(*cdiv1.DataVolumeStatus)
		want   time.Duration // after the last write, which is asked a second after that
	}{
		"another phase":      {func(s *cdiv1.DataVolumeStatus) { s.Phase = cdiv1.Succeeded; half(s) }, 0},
		"its claim":          {func(s *cdiv1.DataVolumeStatus) { s.ClaimName = "other" }, 0},
		"a restart":          {func(s *cdiv1.DataVolumeStatus) { s.RestartCount = 1 }, 0},
		"an error":           {func(s *cdiv1.DataVolumeStatus) { s.Conditions[1].Reason = reasonError }, 0},
		"the claim is bound": {bound, settle},
		"and progress":       {func(s *cdiv1.DataVolumeStatus) { bound(s); half(s) }, settle},
		"progress alone":     {half, progress.Every - time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			var p pace
			dv := &cdiv1.DataVolume{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "disk", UID: "one"}}
			p.wrote(dv, importing(nil), began)
			dv.Status = importing(nil)
			now, status := began.Add(time.Second), importing(c.change)
			if got := p.wait(dv, status, now); got != c.want {
				t.Fatalf("it waits %s, want %s", got, c.want)
			}
			if got := p.wait(dv, status, now.Add(c.want)); got != 0 {
				t.Errorf("after that it waits %s more", got)
			}
			p.rest(dv)
			again := now.Add(time.Minute)
			if got := p.wait(dv, importing(bound), again); got != settle {
				t.Errorf("what comes after all was as before waits %s", got)
			}
		})
	}
}

func TestAControllerThatStartsAnewWritesProgressAtOnce(t *testing.T) {
	var p pace
	dv := &cdiv1.DataVolume{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "disk", UID: "one"}, Status: importing(nil)}
	status := importing(func(s *cdiv1.DataVolumeStatus) { s.Progress = "50.00%" })
	if got := p.wait(dv, status, time.Unix(1_800_000_000, 0)); got != 0 {
		t.Errorf("it waits %s", got)
	}
}

func TestACacheThatLagsBehindIsCaughtUpWith(t *testing.T) {
	var p pace
	shown := &cdiv1.DataVolume{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "disk", UID: "one", ResourceVersion: "7"}}
	shown.Status.Phase = cdiv1.ImportScheduled
	p.wrote(shown, importing(nil), time.Unix(1_800_000_000, 0))
	for name, c := range map[string]struct {
		uid     types.UID
		version string
		shown   cdiv1.DataVolumePhase
		want    cdiv1.DataVolumePhase
	}{
		"as it was before the write":      {"one", "7", cdiv1.ImportScheduled, cdiv1.ImportInProgress},
		"with annotations written before": {"one", "8", cdiv1.ImportScheduled, cdiv1.ImportInProgress},
		"as it is after that":             {"one", "9", cdiv1.Paused, cdiv1.Paused},
		"another of the name":             {"two", "7", cdiv1.ImportScheduled, cdiv1.ImportScheduled},
	} {
		dv := &cdiv1.DataVolume{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "disk", UID: c.uid, ResourceVersion: c.version}}
		dv.Status.Phase = c.shown
		if p.catchUp(dv); dv.Status.Phase != c.want {
			t.Errorf("%s: its phase is %q, want %q", name, dv.Status.Phase, c.want)
		}
	}
}
