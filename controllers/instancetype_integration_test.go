//go:build integration

package controllers

import (
	"testing"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	virtv1 "kubevirt.io/api/core/v1"
	"kubevirt.io/api/instancetype/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-vm/slipway/controllers/instancetype"
)

// A VM whose instance type was deleted is stopped, and started as it was.
func TestAVMOfADeletedInstanceTypeIsStoppedAndStarted(t *testing.T) {
	c := start(t)
	ns := c.namespace(t)
	it := &v1beta1.VirtualMachineInstancetype{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "size"}}
	it.Spec.CPU.Guest, it.Spec.Memory.Guest = 1, resource.MustParse("96Mi")
	must(t, c.Create(t.Context(), it))
	vm := newVM(ns, "typed")
	vm.Spec.Instancetype = &virtv1.InstancetypeMatcher{Kind: instancetype.KindInstancetype, Name: "size"}
	vm.Spec.Template.Spec.Domain.Memory, vm.Spec.Template.Spec.Domain.CPU, vm.Spec.Template.Spec.Domain.Resources = nil, nil, virtv1.ResourceRequirements{}
	must(t, c.Create(t.Context(), vm))
	key := client.ObjectKeyFromObject(vm)
	first := c.launcher(t, key)
	must(t, c.Delete(t.Context(), it))

	must(t, c.mergePatch(t, vm, map[string]any{"spec": map[string]any{"runStrategy": "Halted"}}))
	c.gone(t, first)
	c.vmIs(t, key, virtv1.VirtualMachineStatusStopped)
	must(t, c.mergePatch(t, vm, map[string]any{"spec": map[string]any{"runStrategy": "Always"}}))
	c.launcher(t, key, first.UID)
	if guest := c.vmi(t, key).Spec.Domain.Memory.Guest; guest.String() != "96Mi" {
		t.Errorf("it has %s of memory", guest)
	}
	must(t, c.Get(t.Context(), key, vm))
	if instancetype.RevisionOf(vm.Status.InstancetypeRef) == "" {
		t.Errorf("its status has %+v", vm.Status.InstancetypeRef)
	}
}
