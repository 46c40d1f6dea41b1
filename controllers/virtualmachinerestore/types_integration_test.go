//go:build integration

package virtualmachinerestore

import (
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	virtv1 "kubevirt.io/api/core/v1"
	snapshotv1 "kubevirt.io/api/snapshot/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-vm/slipway/internal/controllerrevision"
)

// A VM that is made of a snapshot has its instance type as the old one had it, in a revision that is its own.
func ofAType(t *testing.T, c client.WithWatch) {
	w := newWorld(t, c)
	data, err := controllerrevision.Data(&map[string]any{"apiVersion": "instancetype.kubevirt.io/v1beta1", "kind": "VirtualMachineInstancetype"})
	w.must(err)
	kept := &appsv1.ControllerRevision{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: "content-size-v1beta1-1-2-3", Labels: map[string]string{"instancetype.kubevirt.io/object-name": "size"}},
		Data:       runtime.RawExtension{Raw: data.Raw},
	}
	w.must(c.Create(t.Context(), kept))
	content := &snapshotv1.VirtualMachineSnapshotContent{}
	w.must(c.Get(t.Context(), client.ObjectKey{Namespace: w.namespace, Name: "content"}, content))
	was := content.Spec.Source.VirtualMachine
	was.Spec.Instancetype = &virtv1.InstancetypeMatcher{Kind: "VirtualMachineInstancetype", Name: "size"}
	was.Status.InstancetypeRef = &virtv1.InstancetypeStatusRef{
		Kind: "VirtualMachineInstancetype", Name: "size", ControllerRevisionRef: &virtv1.ControllerRevisionRef{Name: kept.Name},
	}
	w.must(c.Update(t.Context(), content))
	w.ask("copy")
	w.settle()
	vm := w.isRestored("copy")
	if m := vm.Spec.Instancetype; m == nil || m.Name != "size" || m.RevisionName != "copy-size-v1beta1-1-2-3" {
		t.Fatalf("its instance type is %+v", m)
	}
	revision := &appsv1.ControllerRevision{}
	w.must(c.Get(t.Context(), client.ObjectKey{Namespace: w.namespace, Name: vm.Spec.Instancetype.RevisionName}, revision))
	if !metav1.IsControlledBy(revision, vm) || len(revision.OwnerReferences) != 1 || revision.Labels["instancetype.kubevirt.io/object-name"] != "size" {
		t.Errorf("the revision is %+v", revision.ObjectMeta)
	}
}
