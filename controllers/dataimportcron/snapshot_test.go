package dataimportcron

import (
	"maps"
	"strings"
	"testing"
	"time"

	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"

	"github.com/slipway-vm/slipway/controllers/datavolume"
	"github.com/slipway-vm/slipway/internal/names"
)

const (
	asClaim    = cdiv1.DataImportCronSourceFormatPvc
	asSnapshot = cdiv1.DataImportCronSourceFormatSnapshot
	preference = "instancetype.kubevirt.io/default-preference"
)

// readySnapshot is a snapshot that can be cloned.
func readySnapshot(name string) *snapshotv1.VolumeSnapshot {
	return &snapshotv1.VolumeSnapshot{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "images"}, Status: &snapshotv1.VolumeSnapshotStatus{ReadyToUse: new(true)},
	}
}

func TestNewSnapshot(t *testing.T) {
	cron := ofHTTP(cdiv1.DataVolumeSourceHTTP{})
	cron.Namespace, cron.Name, cron.UID = "images", "debian", "uid"
	claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{
		Namespace: "images", Name: "debian-12-0123456789ab", Labels: map[string]string{preference: "debian", "own": "a"},
		Annotations: map[string]string{names.AnnotationDigest: "slipway1:00", "own": "a"},
	}}
	claim.Spec.VolumeMode = new(corev1.PersistentVolumeBlock)
	claim.Status.Capacity = corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("5Gi")}
	snapshot := newSnapshot(cron, claim, "snaps")
	if snapshot.Name != claim.Name || snapshot.Namespace != "images" || len(snapshot.OwnerReferences) != 0 {
		t.Errorf("it is %+v", snapshot.ObjectMeta)
	}
	for name, want := range map[string]string{LabelCron: "debian", LabelCleanup: "", preference: "debian", "own": ""} {
		if snapshot.Labels[name] != want {
			t.Errorf("label %s is %q, want %q", name, snapshot.Labels[name], want)
		}
	}
	if notes := datavolume.Held(corev1.PersistentVolumeBlock, resource.MustParse("5Gi"), "slipway1:00"); !maps.Equal(snapshot.Annotations, notes) {
		t.Errorf("its annotations are %v, want %v", snapshot.Annotations, notes)
	}
	if spec := snapshot.Spec; *spec.Source.PersistentVolumeClaimName != claim.Name || *spec.VolumeSnapshotClassName != "snaps" {
		t.Errorf("it asks for %+v", spec)
	}
	cron.Spec.RetentionPolicy = new(cdiv1.DataImportCronRetainNone)
	if snapshot = newSnapshot(cron, claim, "snaps"); snapshot.Labels[LabelCleanup] != "true" || len(snapshot.OwnerReferences) != 1 || snapshot.OwnerReferences[0].UID != "uid" {
		t.Errorf("one that goes with its DataImportCron is %+v", snapshot.ObjectMeta)
	}
}

func TestWhatAnImportIsIn(t *testing.T) {
	current := &cdiv1.ImportStatus{DataVolumeName: "a", Digest: someDigest}
	dv := &cdiv1.DataVolume{Status: cdiv1.DataVolumeStatus{Phase: cdiv1.Succeeded}}
	filled := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: "a"}}
	going := filled.DeepCopy()
	going.DeletionTimestamp = &metav1.Time{Time: time.Unix(0, 0)}
	unready, leaving := readySnapshot("a"), readySnapshot("a")
	unready.Status.ReadyToUse = new(false)
	leaving.DeletionTimestamp = going.DeletionTimestamp
	for name, c := range map[string]struct {
		scope scope
		want  string // claim, snapshot or nothing; whether a snapshot is looked for
	}{
		"nothing":                              {scope{}, "nothing, look"},
		"an import under way":                  {scope{current: current, dv: &cdiv1.DataVolume{}, claim: filled, format: asSnapshot}, "nothing"},
		"a claim":                              {scope{current: current, dv: dv, claim: filled, format: asClaim}, "claim"},
		"a claim that is to be a snapshot":     {scope{current: current, dv: dv, claim: filled, format: asSnapshot}, "nothing, look"},
		"a snapshot that is taken":             {scope{current: current, dv: dv, claim: filled, format: asSnapshot, snapshot: unready}, "nothing, look"},
		"a snapshot, and still the claim":      {scope{current: current, dv: dv, claim: filled, format: asSnapshot, snapshot: readySnapshot("a")}, "snapshot, look"},
		"a snapshot, and the claim is going":   {scope{current: current, claim: going, format: asSnapshot, snapshot: readySnapshot("a")}, "snapshot, look"},
		"a snapshot where claims are kept now": {scope{current: current, format: asClaim, snapshot: readySnapshot("a")}, "snapshot, look"},
		"a snapshot that is going":             {scope{current: current, format: asClaim, snapshot: leaving}, "nothing, look"},
	} {
		got := "nothing"
		switch c.scope.whole().(type) {
		case *corev1.PersistentVolumeClaim:
			got = "claim"
		case *snapshotv1.VolumeSnapshot:
			got = "snapshot"
		}
		if c.scope.mayBeSnapshot() {
			got += ", look"
		}
		if got != c.want {
			t.Errorf("%s: got %s, want %s", name, got, c.want)
		}
	}
}

func TestNewDataSource(t *testing.T) {
	last := &cdiv1.DataVolumeSourcePVC{Namespace: "images", Name: "a"}
	labelled := readySnapshot("a")
	labelled.Labels = map[string]string{preference: "debian"}
	before := &cdiv1.DataSource{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{preference: "older"}}}
	before.Spec.Source.PVC = &cdiv1.DataVolumeSourcePVC{Namespace: "images", Name: "older"}
	for name, c := range map[string]struct {
		scope scope
		want  string // claim or snapshot, preference; what is removed
	}{
		"nothing yet":                          {scope{}, " -"},
		"nothing yet, but there was something": {scope{source: before}, "pvc/older -"},
		"a claim":                              {scope{last: last, lastFormat: asClaim}, "pvc/a -"},
		"a claim in the place of a claim":      {scope{last: last, lastFormat: asClaim, source: before}, "pvc/a -"},
		"a snapshot":                           {scope{last: last, lastFormat: asSnapshot, current: &cdiv1.ImportStatus{}, snapshot: labelled}, "snapshot/a debian"},
		"a snapshot in the place of a claim":   {scope{last: last, lastFormat: asSnapshot, current: &cdiv1.ImportStatus{}, snapshot: labelled, source: before}, `snapshot/a debian {"spec":{"source":{"pvc":null}}}`},
		"a snapshot while another is imported": {scope{last: last, lastFormat: asSnapshot, source: before}, `snapshot/a older {"spec":{"source":{"pvc":null}}}`},
	} {
		c.scope.cron = ofHTTP(cdiv1.DataVolumeSourceHTTP{})
		source := newDataSource(&c.scope)
		got := ""
		if from := source.Spec.Source.PVC; from != nil {
			got = "pvc/" + from.Name
		}
		if from := source.Spec.Source.Snapshot; from != nil {
			got += "snapshot/" + from.Name
		}
		if label := source.Labels[preference]; label != "" {
			got += " " + label
		} else {
			got += " -"
		}
		if got = strings.TrimSuffix(got+" "+beside(c.scope.source, source), " "); got != c.want {
			t.Errorf("%s: got %q, want %q", name, got, c.want)
		}
		if !leads(source, source) || c.scope.last != nil && c.scope.source != nil && leads(c.scope.source, source) {
			t.Errorf("%s: it is not told whether it leads to the image", name)
		}
	}
}

func TestObstaclesOfSnapshots(t *testing.T) {
	now := time.Unix(1e9, 0)
	since := func(age time.Duration) *snapshotv1.VolumeSnapshot {
		return &snapshotv1.VolumeSnapshot{ObjectMeta: metav1.ObjectMeta{CreationTimestamp: metav1.Time{Time: now.Add(-age)}}}
	}
	taken, silent := since(snapshotPatience), since(snapshotPatience+time.Second)
	failed := readySnapshot("a")
	failed.Status = &snapshotv1.VolumeSnapshotStatus{Error: &snapshotv1.VolumeSnapshotError{Message: new("the pool is full")}}
	going := readySnapshot("a")
	going.DeletionTimestamp = &metav1.Time{Time: time.Unix(0, 0)}
	for name, c := range map[string]struct {
		snapshot *snapshotv1.VolumeSnapshot
		orphaned bool
		want     string
	}{
		"one that is taken":     {taken, false, ""},
		"one that says nothing": {silent, false, "does not say why"},
		"one that fails":        {failed, false, "the pool is full"},
		"one that is going":     {going, false, "being deleted"},
		"one without its claim": {taken, true, "delete it"},
	} {
		if got := obstacleOf(c.snapshot, c.orphaned, now); (c.want == "") != (got == "") || !strings.Contains(got, c.want) {
			t.Errorf("%s: got %q, want %q in it", name, got, c.want)
		}
	}
}
