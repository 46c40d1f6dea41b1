package datavolume

import (
	"testing"
	"time"

	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"

	"github.com/slipway-vm/slipway/internal/clonesource"
)

func TestBuildCloneSnapshot(t *testing.T) {
	dv := &cdiv1.DataVolume{ObjectMeta: metav1.ObjectMeta{Name: "disk", Namespace: "ns", UID: "dv"}}
	base := &origin{Source: clonesource.Source{Claim: types.NamespacedName{Namespace: "images", Name: "base"}}, uid: "base"}
	snapshot := buildCloneSnapshot(dv, base, "snaps")
	if snapshot.Namespace != "images" || snapshot.Name != "clone-dv" || snapshot.Labels[LabelCloneFor] != "dv" || snapshot.Annotations[annotationCloneFor] != "ns/disk" {
		t.Errorf("it is %+v", snapshot.ObjectMeta)
	}
	if spec := snapshot.Spec; *spec.Source.PersistentVolumeClaimName != "base" || *spec.VolumeSnapshotClassName != "snaps" {
		t.Errorf("it asks for %+v", spec)
	}
	other, again := *base, *base
	other.Claim.Name, again.uid = "other", "again"
	if !isOf(snapshot, base) || isOf(snapshot, &other) || isOf(snapshot, &again) {
		t.Error("it is not told what it is of")
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

func TestASnapshotIsLookedAtSoonAtFirst(t *testing.T) {
	for age, want := range map[time.Duration]time.Duration{0: time.Second, 8 * time.Second: 2 * time.Second, time.Hour: snapshotRetry} {
		s := &scope{}
		s.takes("taking", age)
		if s.result.RequeueAfter != want {
			t.Errorf("after %s it is looked at in %s, want %s", age, s.result.RequeueAfter, want)
		}
	}
}
