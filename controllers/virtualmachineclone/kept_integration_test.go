//go:build integration

package virtualmachineclone

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clonev1 "kubevirt.io/api/clone/v1beta1"
	snapshotv1 "kubevirt.io/api/snapshot/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// The new VM is renamed, or its volumes are kept: its claims need the snapshot when there is no VM of its name any more.
func ofRenamed(t *testing.T, c client.WithWatch) {
	w := newWorld(t, c)
	w.late = true
	w.ask()
	w.settle()
	w.is(clonev1.Succeeded, corev1.ConditionTrue, ready)
	w.must(c.Delete(t.Context(), w.vm("copy")))
	w.settle()
	if left := w.left(); len(left) != 2 || !w.of("c", &clonev1.VirtualMachineClone{}) {
		t.Errorf("before the claims are bound %v are left", left)
	}
	claim := &corev1.PersistentVolumeClaim{}
	w.of("restored", claim)
	claim.Status.Phase = corev1.ClaimBound
	w.must(c.Status().Update(t.Context(), claim))
	w.settle()
	if left := w.left(); len(left) > 0 || w.of("c", &clonev1.VirtualMachineClone{}) {
		t.Errorf("left are %v and %v", left, w.clone())
	}
}

// What others made under the names of the clone's own is neither used nor deleted.
func namesTaken(t *testing.T, c client.WithWatch) {
	w := newWorld(t, c)
	clone := w.ask()
	others := &snapshotv1.VirtualMachineSnapshot{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: snapshotName(clone)}}
	others.Spec.Source = machineRef("web")
	w.must(c.Create(t.Context(), others))
	w.settle()
	w.is(clonev1.Failed, corev1.ConditionFalse, snapshotName(clone)+" exists and is not clone c's")
	if left := w.left(); len(left) != 1 || w.vm("copy") != nil {
		t.Errorf("left are %v", left)
	}
}
