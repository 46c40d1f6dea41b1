//go:build integration

package pool

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-vm/slipway/tests/fixture/lagging"
)

// What the last pass has made or deleted is not made or deleted again.
func unseenMachines(_ *testing.T, w *world) {
	w.pass(&lagging.Client{})
	made := w.wantMachines("web-0", "web-1", "web-2")
	w.wantTold("SuccessfulCreate SuccessfulCreate SuccessfulCreate")
	w.pass(&lagging.Client{Unseen: objects(made)})
	w.wantMachines("web-0", "web-1", "web-2")
	w.change(replicas(2))
	w.pass(&lagging.Client{})
	w.wantTold("SuccessfulDelete")
	w.pass(&lagging.Client{Past: objects(made)})
	w.wantTold("")
}

// A pool that is gone makes nobody in the name of the next.
func unseenSuccessor(t *testing.T, w *world) {
	w.read()
	past := w.pool.DeepCopy()
	w.must(w.Delete(t.Context(), w.pool))
	w.pass(&lagging.Client{Past: []client.Object{past}})
	w.wantMachines()
	next := past.DeepCopy()
	next.UID, next.ResourceVersion = "", ""
	w.must(w.Create(t.Context(), next))
	w.pass(&lagging.Client{Past: []client.Object{past}})
	w.wantMachines()
	w.wantTold("")
}

// A VM is let go only as it was read.
func unseenChange(t *testing.T, w *world) {
	w.pass(&lagging.Client{})
	made := w.wantMachines("web-0", "web-1", "web-2")
	made[0].Labels["app"] = "study"
	w.must(w.Update(t.Context(), &made[0]))
	strayed := made[0].DeepCopy()
	made[0].Labels["app"] = "web"
	w.must(w.Update(t.Context(), &made[0]))
	if result := w.pass(&lagging.Client{Past: []client.Object{strayed}}); !result.Requeue { //nolint:staticcheck // it is what the pass returns
		t.Errorf("a pass over what was read too early is not repeated: %+v", result)
	}
	w.pass(&lagging.Client{})
	w.wantStatus("0/3 app=web")
}

// The end of a namespace is no failure of the pools in it.
func endingNamespace(t *testing.T, w *world) {
	w.must(w.Delete(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: w.pool.Namespace}}))
	w.pass(&lagging.Client{})
	w.wantStatus("0/0 app=web")
	w.wantTold("")
}
