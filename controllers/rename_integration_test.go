//go:build integration

package controllers

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	virtv1 "kubevirt.io/api/core/v1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-vm/slipway/internal/rename"
	"github.com/slipway-vm/slipway/tests/fixture"
)

// mergePatch changes a VM's JSON.
func (c *cluster) mergePatch(t *testing.T, vm *virtv1.VirtualMachine, change map[string]any) error {
	t.Helper()
	patch, err := json.Marshal(change)
	must(t, err)
	return c.Patch(t.Context(), vm.DeepCopy(), client.RawPatch(types.MergePatchType, patch))
}

// A VM is renamed by its controller alone, once that is recorded; admission keeps its spec as it is.
func TestAStoppedVMIsRenamed(t *testing.T) {
	c := start(t)
	namespace := c.namespace(t)
	vm := newVM(namespace, "web")
	fixture.Strategy(virtv1.RunStrategyHalted)(vm)
	fixture.Template("data", fixture.DataVolume(namespace, "data", "1Gi"))(vm)
	// Somebody else's finalizer holds the rename where both VMs are there.
	vm.Finalizers = []string{"example.com/held"}
	must(t, c.Create(t.Context(), vm))
	c.vmIs(t, client.ObjectKeyFromObject(vm), virtv1.VirtualMachineStatusProvisioning) // nothing fills its disk here
	disk := &cdiv1.DataVolume{}
	must(t, c.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: "data"}, disk))
	must(t, c.mergePatch(t, vm, map[string]any{"metadata": map[string]any{"annotations": map[string]any{rename.AnnotationTarget: "shop"}}}))

	key := client.ObjectKey{Namespace: namespace, Name: "shop"}
	next := &virtv1.VirtualMachine{}
	g := gomega.NewWithT(t)
	g.Eventually(func() (bool, error) {
		err := c.Get(t.Context(), client.ObjectKeyFromObject(vm), vm)
		return vm.DeletionTimestamp != nil && len(vm.Finalizers) == 2, err
	}, bound, "100ms").Should(gomega.BeTrue(), "the old VM is deleted, and held by the others' finalizers")
	must(t, c.Get(t.Context(), key, next))
	if _, arriving := rename.OriginOf(next); !arriving {
		t.Error("the new VM is on its own while the old one is there")
	}
	err := c.mergePatch(t, vm, map[string]any{"spec": map[string]any{"runStrategy": "Always"}})
	if err == nil || !strings.Contains(err.Error(), "the VirtualMachine is being renamed; change shop when that is done") {
		t.Errorf("a change of the old VM's spec: %v", err)
	}
	g.Eventually(func() error {
		if err := c.Get(t.Context(), client.ObjectKeyFromObject(vm), vm); err != nil {
			return err
		}
		vm.Finalizers = slices.DeleteFunc(vm.Finalizers, func(name string) bool {
			return name == "example.com/held" || name == metav1.FinalizerOrphanDependents // the garbage collector takes off the latter
		})
		return c.Update(t.Context(), vm)
	}, bound, "100ms").Should(gomega.Succeed())
	g.Eventually(func() (bool, error) {
		err := c.Get(t.Context(), key, next)
		_, arriving := rename.OriginOf(next)
		return arriving, err
	}, bound, "100ms").Should(gomega.BeFalse(), "the new VM is on its own")
	must(t, c.Get(t.Context(), client.ObjectKeyFromObject(disk), disk))
	if !metav1.IsControlledBy(disk, next) {
		t.Errorf("the disk belongs to %+v", disk.OwnerReferences)
	}
	if err := c.Get(t.Context(), client.ObjectKeyFromObject(vm), vm); !apierrors.IsNotFound(err) {
		t.Errorf("the old VM: %v", err)
	}
	c.vmIs(t, key, virtv1.VirtualMachineStatusProvisioning)
}

// A VM whose new name is none is not renamed, says so, and can be changed again.
func TestARenameThatIsRefusedLeavesTheVM(t *testing.T) {
	c := start(t)
	vm := newVM(c.namespace(t), "web")
	fixture.Strategy(virtv1.RunStrategyHalted)(vm)
	vm.Annotations = map[string]string{rename.AnnotationTarget: "shop/one"}
	must(t, c.Create(t.Context(), vm))
	gomega.NewWithT(t).Eventually(func() (string, error) {
		err := c.Get(t.Context(), client.ObjectKeyFromObject(vm), vm)
		_, why := rename.Failure(vm)
		return why, err
	}, bound, "100ms").Should(gomega.ContainSubstring("The VM's new name is not valid"))
	must(t, c.mergePatch(t, vm, map[string]any{"spec": map[string]any{"runStrategy": "Manual"}}))
}
