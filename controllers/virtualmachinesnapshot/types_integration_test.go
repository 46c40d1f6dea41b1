//go:build integration

package virtualmachinesnapshot

import (
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	virtv1 "kubevirt.io/api/core/v1"
	snapshotv1 "kubevirt.io/api/snapshot/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-vm/slipway/internal/names"
)

// A snapshot has a copy of what its VM's instance type was, which stays when the VM has another one.
func ofAType(t *testing.T, c client.WithWatch) {
	w := newWorld(t, c, true)
	vm := w.vm()
	kept := &appsv1.ControllerRevision{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: "web-size-v1beta1-1-2-3"}, Data: runtime.RawExtension{Raw: []byte(`{"kind":"VirtualMachineInstancetype"}`)},
	}
	w.must(c.Create(t.Context(), kept))
	vm.Status.InstancetypeRef = &virtv1.InstancetypeStatusRef{
		Kind: "VirtualMachineInstancetype", Name: "size", ControllerRevisionRef: &virtv1.ControllerRevisionRef{Name: kept.Name},
	}
	w.must(c.Status().Update(t.Context(), vm, client.FieldOwner(names.ManagerController)))
	w.settle("s")
	content := w.taken("s", snapshotv1.VMSnapshotGuestAgentIndication, snapshotv1.VMSnapshotOnlineSnapshotIndication)
	ref := content.Spec.Source.VirtualMachine.Status.InstancetypeRef
	if ref == nil || ref.ControllerRevisionRef == nil || ref.ControllerRevisionRef.Name != content.Name+"-size-v1beta1-1-2-3" {
		t.Fatalf("the content has %+v", ref)
	}
	revision := &appsv1.ControllerRevision{}
	w.must(c.Get(t.Context(), client.ObjectKey{Namespace: w.namespace, Name: ref.ControllerRevisionRef.Name}, revision))
	if !metav1.IsControlledBy(revision, content) || string(revision.Data.Raw) != string(kept.Data.Raw) {
		t.Errorf("the copy is %+v", revision)
	}
}
