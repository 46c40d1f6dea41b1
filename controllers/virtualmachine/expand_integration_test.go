//go:build integration

package virtualmachine

import (
	"context"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	virtv1 "kubevirt.io/api/core/v1"

	"github.com/slipway-vm/slipway/tests/fixture/lagging"
)

// policy has the KubeVirt object say how VMs have their instance types, until the test ends.
func (w *world) policy(policy virtv1.InstancetypeReferencePolicy) {
	w.t.Helper()
	kv := &virtv1.KubeVirt{ObjectMeta: metav1.ObjectMeta{Namespace: w.vm.Namespace, Name: "kubevirt"}}
	kv.Spec.Configuration.Instancetype = &virtv1.InstancetypeConfiguration{ReferencePolicy: &policy}
	w.must(w.Create(w.t.Context(), kv))
	w.t.Cleanup(func() { w.must(w.Delete(context.WithoutCancel(w.t.Context()), kv)) })
}

// writtenOut wants the VM, and what runs of it, to have the memory of its instance type, and not to refer to that.
func (w *world) writtenOut(memory string) {
	w.t.Helper()
	vm, vmi := w.read(), w.vmi()
	if vm.Spec.Instancetype != nil || vm.Status.InstancetypeRef != nil {
		w.t.Errorf("the VM refers to %+v, and its status to %+v", vm.Spec.Instancetype, vm.Status.InstancetypeRef)
	}
	if got := vm.Spec.Template.Spec.Domain.Memory; got == nil || got.Guest == nil || got.Guest.String() != memory {
		w.t.Errorf("the VM has memory %+v", got)
	}
	if got := vmi.Spec.Domain.Memory; got == nil || got.Guest == nil || got.Guest.String() != memory || Outdated(vm, vmi) {
		w.t.Errorf("the instance has memory %+v", got)
	}
}

// What an instance type says is written into a VM that is new, which needs it no more.
func expandedType(t *testing.T, w *world) {
	w.policy(virtv1.Expand)
	it := w.makeType("size", "128Mi")
	w.ofType("size")
	w.pass(&lagging.Client{})
	w.writtenOut("128Mi")
	w.must(w.Delete(t.Context(), it))
	w.end()
	w.pass(&lagging.Client{})
	w.writtenOut("128Mi")
}

// A VM that runs with an instance type that is kept for it gets it written out when all do, as it is kept, and its guest stays as it is.
func expandedWhileItRuns(t *testing.T, w *world) {
	it := w.makeType("size", "128Mi")
	w.ofType("size")
	w.pass(&lagging.Client{})
	uid := w.vmi().UID
	w.must(w.Delete(t.Context(), it))
	w.policy(virtv1.ExpandAll)
	w.pass(&lagging.Client{})
	w.writtenOut("128Mi")
	w.wantRestart("its instance type was written out", "")
	if got := w.vmi().UID; got != uid {
		t.Errorf("another instance runs: %s", got)
	}
}
