package datavolume

import (
	"testing"
	"time"

	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"

	"github.com/slipway-vm/slipway/internal/clonesource"
	"github.com/slipway-vm/slipway/internal/names"
)

func TestBuildCloneSnapshot(t *testing.T) {
	dv := &cdiv1.DataVolume{ObjectMeta: metav1.ObjectMeta{Name: "disk", Namespace: "ns", UID: "dv"}}
	base := &origin{Source: clonesource.Source{Claim: types.NamespacedName{Namespace: "images", Name: "base"}}, uid: "base", mode: "Block", size: resource.MustParse("5Gi"), digest: "slipway1:11"}
	snapshot := buildCloneSnapshot(dv, base, "snaps")
	if snapshot.Namespace != "images" || snapshot.Name != "clone-dv" || snapshot.Labels[LabelCloneFor] != "dv" || snapshot.Annotations[annotationCloneFor] != "ns/disk" {
		t.Errorf("it is %+v", snapshot.ObjectMeta)
	}
	if spec := snapshot.Spec; *spec.Source.PersistentVolumeClaimName != "base" || *spec.VolumeSnapshotClassName != "snaps" {
		t.Errorf("it asks for %+v", spec)
	}
	if notes := snapshot.Annotations; notes[AnnotationSourceMode] != "Block" || notes[AnnotationSourceSize] != "5Gi" || notes[names.AnnotationDigest] != "slipway1:11" {
		t.Errorf("of what it holds it says %v", notes)
	}
	other, again, written := *base, *base, *base
	other.Claim.Name, again.uid, written.digest = "other", "again", "slipway1:22"
	if !isOf(snapshot, base) || isOf(snapshot, &other) || isOf(snapshot, &again) || isOf(snapshot, &written) {
		t.Error("it is not told what it is of")
	}
}

func TestWhatIsBroughtForADataVolume(t *testing.T) {
	dv := &cdiv1.DataVolume{ObjectMeta: metav1.ObjectMeta{Name: "disk", Namespace: "ns", UID: "dv"}}
	for mark, want := range map[string]bool{
		"images/base": true, "volumesnapshots/images/clone-dv": true,
		"images/other": false, "secret/base": false, "volumesnapshots/images/base": false, "volumesnapshots/secret/clone-dv": false,
	} {
		dv.Annotations = map[string]string{clonesource.AnnotationAuthorized: "images/base"}
		if got := mayBring(dv, clonesource.FromMark(mark)); got != want {
			t.Errorf("%s may have been brought: %t", mark, got)
		}
		dv.Annotations = nil
		if mayBring(dv, clonesource.FromMark(mark)) {
			t.Errorf("%s may have been brought without leave", mark)
		}
	}
}

func TestAnOriginThroughASnapshot(t *testing.T) {
	claim := &origin{
		Source: clonesource.Source{Claim: types.NamespacedName{Namespace: "images", Name: "base"}},
		mode:   "Block", class: new("fast"), size: resource.MustParse("5Gi"),
	}
	for restore, want := range map[string]string{"": "5Gi", "4Gi": "5Gi", "6Gi": "6Gi"} {
		snapshot := &snapshotv1.VolumeSnapshot{
			ObjectMeta: metav1.ObjectMeta{Namespace: "images", Name: "clone-dv"}, Status: &snapshotv1.VolumeSnapshotStatus{},
		}
		if restore != "" {
			snapshot.Status.RestoreSize = new(resource.MustParse(restore))
		}
		got := claim.through(snapshot)
		if !got.InSnapshot() || got.Key().String() != "images/clone-dv" || got.mode != "Block" || *got.class != "fast" || got.size.String() != want {
			t.Errorf("with a snapshot of %q it is %+v, want %s", restore, got, want)
		}
	}
	if claim.InSnapshot() || claim.size.String() != "5Gi" {
		t.Errorf("the claim became %+v", claim)
	}
}

func TestWhatADriverDoesNotSayIsNoted(t *testing.T) {
	notes := Held("Block", resource.MustParse("5Gi"), "")
	for name, c := range map[string]struct {
		notes   map[string]string
		mode    *corev1.PersistentVolumeMode
		restore *resource.Quantity
		want    string // mode, size
	}{
		"nothing":              {nil, nil, nil, " 0"},
		"what is noted":        {notes, nil, nil, "Block 5Gi"},
		"a size of none":       {notes, nil, new(resource.MustParse("0")), "Block 5Gi"},
		"what the driver says": {notes, new(corev1.PersistentVolumeFilesystem), new(resource.MustParse("6Gi")), "Filesystem 6Gi"},
		"what makes no sense":  {map[string]string{AnnotationSourceMode: "Tape", AnnotationSourceSize: "a lot"}, nil, nil, " 0"},
		"the driver alone":     {nil, new(corev1.PersistentVolumeBlock), new(resource.MustParse("6Gi")), "Block 6Gi"},
	} {
		snapshot := &snapshotv1.VolumeSnapshot{ObjectMeta: metav1.ObjectMeta{Annotations: c.notes}, Status: &snapshotv1.VolumeSnapshotStatus{RestoreSize: c.restore}}
		o := originOfSnapshot(snapshot, &snapshotv1.VolumeSnapshotContent{Spec: snapshotv1.VolumeSnapshotContentSpec{SourceVolumeMode: c.mode}})
		if got := string(o.mode) + " " + o.size.String(); got != c.want {
			t.Errorf("%s: got %q, want %q", name, got, c.want)
		}
	}
}

func TestASnapshotIsLookedAtSoonAtFirst(t *testing.T) {
	for age, want := range map[time.Duration]time.Duration{0: time.Second, 8 * time.Second: 2 * time.Second, time.Hour: snapshotRetry} {
		s := &scope{}
		s.takes("taking", age)
		if s.result.RequeueAfter != want {
			t.Errorf("after %s it is looked at in %s, want %s", age, s.result.RequeueAfter, want)
		}
	}
}
