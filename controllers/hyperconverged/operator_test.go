package hyperconverged

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/event"
)

func TestOnlyNamespacesThatWereAskedForBringPasses(t *testing.T) {
	r := &Reconciler{}
	r.home.Store("pipelines", true)
	for name, want := range map[string]bool{"pipelines": true, "somebody-elses": false} {
		namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
		for _, p := range r.eventsOf(namespaceKind) {
			got := []bool{
				p.Create(event.CreateEvent{Object: namespace}), p.Delete(event.DeleteEvent{Object: namespace}),
				p.Update(event.UpdateEvent{ObjectOld: namespace, ObjectNew: namespace}),
			}
			for i, event := range []string{"the beginning", "the end", "a change"} {
				if got[i] != want {
					t.Errorf("%s of namespace %s brings a pass: %v, want %v", event, name, got[i], want)
				}
			}
		}
	}
	if len(r.eventsOf(namespaceKind)) == 0 {
		t.Error("every event of every namespace brings a pass")
	}
}
