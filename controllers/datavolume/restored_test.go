package datavolume

import (
	"errors"
	"testing"

	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-vm/slipway/internal/clonesource"
	"github.com/slipway-vm/slipway/internal/names"
	"github.com/slipway-vm/slipway/internal/steps"
)

// kept is a snapshot of example.com in images.
func kept(name string) *origin {
	return &origin{
		Source: clonesource.Source{Snapshot: types.NamespacedName{Namespace: "images", Name: name}},
		driver: "example.com", size: resource.MustParse("1Gi"),
	}
}

func TestTheClassThatReadsASnapshot(t *testing.T) {
	class := func(name, provisioner string) client.Object {
		return &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: name}, Provisioner: provisioner}
	}
	claim := func(class string) client.Object {
		return &corev1.PersistentVolumeClaim{
			ObjectMeta: metav1.ObjectMeta{Namespace: "images", Name: "base"}, Spec: corev1.PersistentVolumeClaimSpec{StorageClassName: &class},
		}
	}
	snapshot := &snapshotv1.VolumeSnapshot{ObjectMeta: metav1.ObjectMeta{Namespace: "images", Name: "kept"}}
	snapshot.Spec.Source.PersistentVolumeClaimName = new("base")
	main := class("b-main", "example.com")
	main.SetAnnotations(map[string]string{names.AnnotationDefaultClass: "true"})
	all := []client.Object{snapshot, class("a-pool", "example.com"), main, class("c-pool", "example.com"), class("other", "example.org")}
	for name, c := range map[string]struct {
		objects []client.Object
		want    string
	}{
		"that of its claim":              {append(all, claim("c-pool")), "c-pool"},
		"the claim is another one's now": {append(all, claim("other")), "b-main"},
		"the claim's class is gone":      {append(all, claim("gone")), "b-main"},
		"the claim is gone":              {all, "b-main"},
		"there is none":                  {[]client.Object{snapshot, class("other", "example.org")}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := shelf(c.objects...).classOfSnapshot(t.Context(), kept("kept"))
			if err != nil || (got == nil) != (c.want == "") || got != nil && got.Name != c.want {
				t.Errorf("got %v, %v", got, err)
			}
		})
	}
}

// A DataSource may name another snapshot before the copy begins.
func TestAClaimOfAnotherSnapshotIsMadeAnew(t *testing.T) {
	dv := &cdiv1.DataVolume{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "disk", UID: "dv"}, Spec: cdiv1.DataVolumeSpec{PVC: &corev1.PersistentVolumeClaimSpec{
		Resources: corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}},
	}}}
	before := buildRestored(dv, kept("before"), "fast", nil)
	there := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{AnnotationCopiedFrom: "images/" + before.Name}}}
	copied := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{AnnotationCopiedFrom: kept("now").Mark()}}}
	for name, c := range map[string]struct {
		now   string
		way   way
		stays bool
	}{
		"it is of another one":              {"now", way{}, false},
		"it is of this one":                 {"before", way{}, true},
		"a copy of the other one was begun": {"now", way{there: there}, true},
	} {
		t.Run(name, func(t *testing.T) {
			r := shelf(before.DeepCopy())
			s := &scope{dv: dv, way: c.way}
			in := claimInput{DataVolume: dv, Source: kept(c.now), Begun: c.way.manner()}
			claim, err := r.restore(t.Context(), s, &in, copied.DeepCopy())
			found, getErr := get(t.Context(), r.Client, client.ObjectKeyFromObject(before), &corev1.PersistentVolumeClaim{})
			if getErr != nil || (found != nil) != c.stays || errors.Is(err, steps.ErrDone) == c.stays {
				t.Fatalf("the claim stays: %t; %v, %v", found != nil, err, getErr)
			}
			if c.stays && claim.Annotations[AnnotationCopiedFrom] != "images/"+before.Name {
				t.Errorf("the claim is %+v", claim)
			}
		})
	}
}

// Some drivers do not tell how large a snapshot is.
func TestASnapshotOfUnknownSize(t *testing.T) {
	dv := &cdiv1.DataVolume{Spec: cdiv1.DataVolumeSpec{PVC: &corev1.PersistentVolumeClaimSpec{
		Resources: corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("5Gi")}},
	}}}
	for want, size := range map[string]string{"5Gi": "0", "2Gi": "2Gi"} {
		snapshot := kept("kept")
		snapshot.size = resource.MustParse(size)
		if got := buildRestored(dv, snapshot, "fast", nil).Spec.Resources.Requests.Storage(); got.String() != want {
			t.Errorf("a claim of %s is made of a snapshot of %s", got, size)
		}
	}
}
