//go:build integration

package replicaset

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	virtv1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-vm/slipway/tests/fixture/lagging"
)

// awkward is what a set meets in moments that are else too short, or at its end.
var awkward = map[string]func(*testing.T, *world){
	"instances that the cache lacks":               unseenInstances,
	"a deletion that the cache has not seen":       unseenDeletion,
	"a set that is being deleted, unseen":          unseenEnd,
	"a set that went and came again, unseen":       unseenSuccessor,
	"an instance that changed since it was read":   unseenChange,
	"a namespace that is being deleted":            endingNamespace,
	"a deletion that waits for instances, or none": endings,
}

// What the last pass has made is not made again.
func unseenInstances(_ *testing.T, w *world) {
	w.pass(&lagging.Client{})
	made := w.count(3, "before")
	w.told()
	for range 3 {
		w.pass(&lagging.Client{Unseen: objects(made)})
	}
	w.count(3, "with a cache that lacks them")
	w.wantStatus("0/3 app=web")
	w.wantTold("")
}

// What the last pass has deleted counts no more, and nobody else goes in its place.
func unseenDeletion(_ *testing.T, w *world) {
	w.pass(&lagging.Client{})
	made := w.count(3, "before")
	w.change(func(spec *virtv1.VirtualMachineInstanceReplicaSetSpec) { spec.Replicas = new(int32(2)) })
	w.pass(&lagging.Client{})
	w.count(2, "after")
	w.told()
	w.pass(&lagging.Client{Past: objects(made)})
	w.count(2, "with a cache that has it still")
	w.wantTold("")
}

// A set that is being deleted makes nobody, and takes nobody on, though the cache does not show that.
func unseenEnd(t *testing.T, w *world) {
	w.status()
	past := w.set.DeepCopy()
	w.set.Finalizers = []string{metav1.FinalizerOrphanDependents}
	w.must(w.Update(t.Context(), w.set))
	w.must(w.Delete(t.Context(), w.set))
	w.pass(&lagging.Client{Past: []client.Object{past}})
	w.count(0, "being deleted")
}

// A set that is gone makes nobody in the name of the next.
func unseenSuccessor(t *testing.T, w *world) {
	w.status()
	past := w.set.DeepCopy()
	w.must(w.Delete(t.Context(), w.set))
	w.pass(&lagging.Client{Past: []client.Object{past}})
	w.count(0, "gone")
	next := past.DeepCopy()
	next.UID, next.ResourceVersion = "", ""
	w.must(w.Create(t.Context(), next))
	w.pass(&lagging.Client{Past: []client.Object{past}})
	w.count(0, "another of the name")
	w.wantTold("")
}

// Owners are changed only of an instance that is as it was read.
func unseenChange(t *testing.T, w *world) {
	w.pass(&lagging.Client{})
	made := w.count(3, "before")
	made[0].Labels["app"] = "study"
	w.must(w.Update(t.Context(), &made[0]))
	strayed := w.instances()
	back := made[0].DeepCopy()
	back.Labels["app"] = "web"
	w.must(w.Update(t.Context(), back))
	if result := w.pass(&lagging.Client{Past: objects(strayed)}); !result.Requeue { //nolint:staticcheck // it is what the pass returns
		t.Errorf("a pass over what was read too early is not repeated: %+v", result)
	}
	w.pass(&lagging.Client{})
	w.count(3, "it was never let go")
	w.wantStatus("0/3 app=web")
}

// The end of a namespace is no failure of the sets in it.
func endingNamespace(t *testing.T, w *world) {
	w.must(w.Delete(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: w.set.Namespace}}))
	w.pass(&lagging.Client{})
	w.wantStatus("0/0 app=web")
	w.wantTold("")
}

// A set that waits for its instances, or leaves them behind, touches none while it goes.
func endings(t *testing.T, w *world) {
	w.pass(&lagging.Client{})
	made := w.count(3, "before")
	w.told()
	w.must(w.Delete(t.Context(), w.set, client.PropagationPolicy(metav1.DeletePropagationForeground)))
	w.must(w.Delete(t.Context(), &made[0])) // the garbage collector's work
	w.pass(&lagging.Client{})
	w.count(2, "deleted in the foreground")
	w.wantStatus("0/2 app=web")
	made[1].OwnerReferences = nil
	w.must(w.Update(t.Context(), &made[1]))
	w.pass(&lagging.Client{})
	w.must(w.Get(t.Context(), client.ObjectKeyFromObject(&made[1]), &made[1]))
	if len(made[1].OwnerReferences) != 0 {
		t.Error("an orphan was taken back")
	}
	w.status()
	w.set.Finalizers = nil
	w.must(w.Update(t.Context(), w.set))
	w.pass(&lagging.Client{})
	if err := w.Get(t.Context(), client.ObjectKeyFromObject(w.set), w.set); !apierrors.IsNotFound(err) {
		t.Errorf("the set stays: %v", err)
	}
	w.wantTold("")
}
