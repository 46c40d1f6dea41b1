//go:build integration

package controllers

import (
	"context"
	"testing"

	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	virtv1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-vm/slipway/internal/names"
)

// configure merges change into the KubeVirt object's configuration, and takes it back by undo when the test ends.
func (c *cluster) configure(t *testing.T, change, undo string) {
	t.Helper()
	say := func(value string) {
		kv := &virtv1.KubeVirt{ObjectMeta: metav1.ObjectMeta{Namespace: installed, Name: names.KubeVirtName}}
		patch := client.RawPatch(types.MergePatchType, []byte(`{"spec":{"configuration":`+value+`}}`))
		must(t, c.Patch(context.WithoutCancel(t.Context()), kv, patch))
	}
	t.Cleanup(func() { say(undo) })
	say(change)
}

func TestTheClusterSaysWhatAMachineIs(t *testing.T) {
	c := start(t)
	class := &nodev1.RuntimeClass{ObjectMeta: metav1.ObjectMeta{Name: "sandboxed"}, Handler: "sandboxed"}
	must(t, c.Create(t.Context(), class))
	t.Cleanup(func() { must(t, c.Delete(context.WithoutCancel(t.Context()), class)) })
	c.configure(t, `{"machineType":"pc-q35-9.2","cpuModel":"Nehalem","cpuRequest":"1500m","defaultRuntimeClass":"sandboxed"}`,
		`{"machineType":null,"cpuModel":null,"cpuRequest":null,"defaultRuntimeClass":null}`)
	key, p := c.run(t, "as-the-cluster-says")
	domain := c.vmi(t, key).Spec.Domain
	request := domain.Resources.Requests[corev1.ResourceCPU]
	if domain.Machine.Type != "pc-q35-9.2" || domain.CPU.Model != "Nehalem" || domain.CPU.Sockets != 2 || request.String() != "1500m" {
		t.Errorf("the VMI has %+v, %+v and requests %s", domain.Machine, domain.CPU, request.String())
	}
	if of := p.Spec.Containers[0].Resources.Requests[corev1.ResourceCPU]; of.String() != "1500m" {
		t.Errorf("the pod requests %s", of.String())
	}
	if p.Spec.RuntimeClassName == nil || *p.Spec.RuntimeClassName != class.Name {
		t.Errorf("the pod's runtime class is %v", p.Spec.RuntimeClassName)
	}
	vm := &virtv1.VirtualMachine{}
	must(t, c.Get(t.Context(), key, vm))
	if machine := vm.Spec.Template.Spec.Domain.Machine; machine == nil || machine.Type != "pc-q35-9.2" {
		t.Errorf("the VM has %+v", machine)
	}
	for _, condition := range vm.Status.Conditions {
		if condition.Type == virtv1.VirtualMachineRestartRequired {
			t.Errorf("the VM says %+v", condition)
		}
	}
}
