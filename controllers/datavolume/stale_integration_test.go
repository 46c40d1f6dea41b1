//go:build integration

package datavolume_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-vm/slipway/controllers/datavolume"
	"github.com/slipway-vm/slipway/tests/fixture/apiserver"
	"github.com/slipway-vm/slipway/tests/fixture/lagging"
)

// TestAPassWithAStaleCache makes single passes against a real API server, with no controller beside.
func TestAPassWithAStaleCache(t *testing.T) {
	c := newClient(t, apiserver.Start(t, apiserver.Only(t, crds, "cdi.kubevirt.io", "snapshot.storage.k8s.io")...))
	for name, test := range map[string]func(*testing.T, *world){
		"an unseen claim":        unseenClaim,
		"a DataVolume that went": goneDataVolume,
		"a filled claim":         filledClaim,
		"an unseen pod":          unseenPod,
		"an ending namespace":    endingNamespace,
		"a collection goes on":   endsCollecting,
	} {
		t.Run(name, func(t *testing.T) { test(t, newWorld(t, c)) })
	}
}

// pass makes one pass over a DataVolume with a cache that lags behind.
func (w *world) pass(dv *cdiv1.DataVolume, cache *lagging.Client) ctrl.Result {
	w.t.Helper()
	cache.Client = w.Client
	result, err := datavolume.NewReconciler(cache, w.Client).Reconcile(w.t.Context(), ctrl.Request{NamespacedName: client.ObjectKeyFromObject(dv)})
	w.must(err)
	return result
}

// A claim that the cache does not show yet is never taken over: it may hold another's disk.
func unseenClaim(t *testing.T, w *world) {
	dv := newDataVolume(w.namespace, "disk")
	claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: "disk", Namespace: w.namespace}, Spec: *dv.Spec.PVC.DeepCopy()}
	w.must(w.Create(t.Context(), claim))
	w.must(w.Create(t.Context(), dv))
	if result := w.pass(dv, &lagging.Client{Unseen: []client.Object{claim}}); result.RequeueAfter == 0 {
		t.Error("no other pass follows")
	}
	if got := w.claim("disk"); len(got.OwnerReferences) > 0 || got.ResourceVersion != claim.ResourceVersion {
		t.Errorf("the claim was changed: %+v", got.ObjectMeta)
	}
	if got := w.dv("disk"); got.Status.Phase != cdiv1.PhaseUnset {
		t.Errorf("a pass that knows nothing has written %+v", got.Status)
	}
}

// A DataVolume that is gone gets no claim again when its claim's end is seen before its own.
func goneDataVolume(t *testing.T, w *world) {
	dv := newDataVolume(w.namespace, "disk")
	w.must(w.Create(t.Context(), dv))
	past := dv.DeepCopy()
	w.must(w.Delete(t.Context(), dv))
	w.pass(dv, &lagging.Client{Past: []client.Object{past}})
	if got := w.claim("disk"); got.UID != "" {
		t.Errorf("there is a claim of a DataVolume that is gone: %+v", got.ObjectMeta)
	}
	w.must(w.Create(t.Context(), newDataVolume(w.namespace, "disk")))
	w.pass(dv, &lagging.Client{Past: []client.Object{past}})
	if got := w.claim("disk"); got.UID != "" {
		t.Errorf("the claim of a new DataVolume has the old one as its owner: %+v", got.ObjectMeta)
	}
}

// No importer starts on a disk that is filled, though the cache shows it empty and its pod gone.
func filledClaim(t *testing.T, w *world) {
	dv := newDataVolume(w.namespace, "disk")
	w.must(w.Create(t.Context(), dv))
	w.pass(dv, &lagging.Client{})
	past := w.claim("disk")
	w.must(w.Delete(t.Context(), w.pod("disk"), client.GracePeriodSeconds(0)))
	filled := past.DeepCopy()
	filled.Annotations[datavolume.AnnotationPodPhase] = "Succeeded"
	w.must(w.Update(t.Context(), filled))
	if result := w.pass(dv, &lagging.Client{Past: []client.Object{past}}); result.RequeueAfter == 0 {
		t.Error("no other pass follows")
	}
	var pods corev1.PodList
	w.must(w.List(t.Context(), &pods, client.InNamespace(w.namespace)))
	if len(pods.Items) > 0 {
		t.Errorf("an importer was started: %+v", pods.Items[0].ObjectMeta)
	}
}

// An importer of which the cache knows nothing yet is not made twice, and another's pod in its
// place is told.
func unseenPod(t *testing.T, w *world) {
	dv := newDataVolume(w.namespace, "disk")
	w.must(w.Create(t.Context(), dv))
	w.pass(dv, &lagging.Client{})
	own := w.pod("disk")
	w.pass(dv, &lagging.Client{Unseen: []client.Object{own}})
	if got := w.pod("disk"); got.UID != own.UID || got.ResourceVersion != own.ResourceVersion {
		t.Errorf("the pod was changed: %+v", got.ObjectMeta)
	}
	w.must(w.Delete(t.Context(), own, client.GracePeriodSeconds(0)))
	other := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: own.Name}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i"}}}}
	w.must(w.Create(t.Context(), other))
	w.pass(dv, &lagging.Client{})
	if c := condition(w.dv("disk"), cdiv1.DataVolumeBound); c.Reason != "ErrResourceExists" {
		t.Errorf("Bound is %+v", c)
	}
}

// In a namespace that is being deleted nothing is made, and nothing is wrong.
func endingNamespace(t *testing.T, w *world) {
	dv := newDataVolume(w.namespace, "disk")
	w.must(w.Create(t.Context(), dv))
	w.must(w.Delete(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: w.namespace}}))
	if result := w.pass(dv, &lagging.Client{}); result != (ctrl.Result{}) {
		t.Errorf("another pass follows: %+v", result)
	}
}

func newDataVolume(namespace, name string) *cdiv1.DataVolume {
	return &cdiv1.DataVolume{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: namespace},
		Spec: cdiv1.DataVolumeSpec{Source: http(), PVC: &corev1.PersistentVolumeClaimSpec{
			AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}, StorageClassName: new("fast"),
			Resources: corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}},
		}},
	}
}
