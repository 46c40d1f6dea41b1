package datasource

import (
	"testing"

	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/slipway-vm/slipway/internal/scheme"
)

func TestADataSourceIsReadyWhenItCanBeCloned(t *testing.T) {
	dv := func(phase cdiv1.DataVolumePhase) *cdiv1.DataVolume {
		dv := &cdiv1.DataVolume{ObjectMeta: metav1.ObjectMeta{Namespace: "images", Name: "base", UID: "dv"}}
		dv.Status.Phase = phase
		return dv
	}
	claim := func(phase corev1.PersistentVolumeClaimPhase, of *cdiv1.DataVolume) *corev1.PersistentVolumeClaim {
		claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "images", Name: "base"}}
		claim.Status.Phase = phase
		if of != nil {
			claim.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(of, cdiv1.SchemeGroupVersion.WithKind("DataVolume"))}
		}
		return claim
	}
	snapshot := &snapshotv1.VolumeSnapshot{ObjectMeta: metav1.ObjectMeta{Namespace: "images", Name: "base"}}
	snapshot.Status = &snapshotv1.VolumeSnapshotStatus{ReadyToUse: new(true)}
	for name, c := range map[string]struct {
		objects  []client.Object
		snapshot bool
		want     string
	}{
		"nothing":                      {want: "NotFound"},
		"a claim":                      {objects: []client.Object{claim(corev1.ClaimBound, nil)}, want: "Ready"},
		"a claim that goes":            {objects: []client.Object{going(claim(corev1.ClaimBound, nil))}, want: "NotFound"},
		"a claim without its volume":   {objects: []client.Object{claim(corev1.ClaimLost, nil)}, want: "ClaimLost"},
		"an import":                    {objects: []client.Object{dv(cdiv1.Succeeded), claim(corev1.ClaimBound, dv(""))}, want: "Ready"},
		"an import under way":          {objects: []client.Object{dv(cdiv1.ImportInProgress), claim(corev1.ClaimBound, dv(""))}, want: "ImportInProgress"},
		"an import that begins":        {objects: []client.Object{dv(""), claim(corev1.ClaimPending, dv(""))}, want: "Pending"},
		"an import that is deleted":    {objects: []client.Object{claim(corev1.ClaimBound, dv(""))}, want: "NotFound"},
		"a snapshot":                   {objects: []client.Object{snapshot}, snapshot: true, want: "Ready"},
		"a snapshot that goes":         {objects: []client.Object{going(snapshot.DeepCopy())}, snapshot: true, want: "NotFound"},
		"no snapshot, but a claim":     {objects: []client.Object{claim(corev1.ClaimBound, nil)}, snapshot: true, want: "NotFound"},
		"a claim, but it is not named": {objects: []client.Object{snapshot}, want: "NotFound"},
	} {
		c0 := fake.NewClientBuilder().WithScheme(scheme.New()).WithObjects(c.objects...).WithStatusSubresource().Build()
		source := &cdiv1.DataSource{ObjectMeta: metav1.ObjectMeta{Namespace: "images", Name: "golden"}}
		source.Spec.Source.PVC = &cdiv1.DataVolumeSourcePVC{Name: "base"}
		if c.snapshot {
			source.Spec.Source = cdiv1.DataSourceSource{Snapshot: &cdiv1.DataVolumeSourceSnapshot{Name: "base"}}
		}
		found, err := (&Reconciler{Client: c0, live: c0}).resolve(t.Context(), source)
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if found.reason != c.want || found.ready != (c.want == "Ready") || found.message == "" {
			t.Errorf("%s: it is %+v, want %s", name, found, c.want)
		}
	}
}

// going makes an object one that is being deleted.
func going[T client.Object](object T) T {
	object.SetDeletionTimestamp(new(metav1.Now()))
	object.SetFinalizers([]string{"example.com/held"})
	return object
}
