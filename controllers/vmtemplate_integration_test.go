//go:build integration

package controllers

import (
	"testing"

	"github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	virtv1 "kubevirt.io/api/core/v1"
	snapshotv1 "kubevirt.io/api/snapshot/v1beta1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-vm/slipway/catalog/template"
	vmtemplatev1beta1 "github.com/slipway-vm/slipway/internal/api/virtualmachinetemplate/v1beta1"
	"github.com/slipway-vm/slipway/tests/fixture"
)

// All that Slipway runs together makes a template of a VM, and a VM of that; the test is the storage driver.
func TestATemplateIsMadeOfAVM(t *testing.T) {
	c := start(t)
	g := gomega.NewWithT(t)
	namespace := c.namespace(t)
	c.snappedClasses(t)
	c.snapped(t, namespace, "root")
	vm := newVM(namespace, "web")
	fixture.Strategy(virtv1.RunStrategyHalted)(vm)
	fixture.Template("system", fixture.DataVolume(namespace, "root", "1Gi"))(vm)
	must(t, c.Create(t.Context(), vm))
	request := &vmtemplatev1beta1.VirtualMachineTemplateRequest{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "golden"}}
	request.Spec.VirtualMachineRef = vmtemplatev1beta1.VirtualMachineReference{Namespace: namespace, Name: "web"}
	must(t, c.Create(t.Context(), request))
	g.Eventually(func() (bool, error) {
		if err := c.play(t, namespace); err != nil {
			return false, err
		}
		err := c.Get(t.Context(), client.ObjectKeyFromObject(request), request)
		return meta.IsStatusConditionTrue(request.Status.Conditions, vmtemplatev1beta1.ConditionReady) && len(request.Finalizers) == 0, err
	}, bound, "100ms").Should(gomega.BeTrue(), "the template is ready: %+v", request)

	made := &unstructured.Unstructured{}
	made.SetGroupVersionKind(vmtemplatev1beta1.GroupVersion.WithKind("VirtualMachineTemplate"))
	must(t, c.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: request.Status.TemplateRef.Name}, made))
	disks := &cdiv1.DataVolumeList{}
	must(t, c.List(t.Context(), disks, client.InNamespace(namespace), client.MatchingLabels{vmtemplatev1beta1.LabelRequest: string(request.UID)}))
	if len(disks.Items) != 1 || !metav1.IsControlledBy(&disks.Items[0], made) || disks.Items[0].Status.Phase != cdiv1.Succeeded {
		t.Errorf("the disks are %+v", disks.Items)
	}
	snapshots := &snapshotv1.VirtualMachineSnapshotList{}
	g.Eventually(func() (int, error) {
		err := c.List(t.Context(), snapshots, client.InNamespace(namespace))
		return len(snapshots.Items), err
	}, bound, "100ms").Should(gomega.BeZero(), "the snapshot is gone: %+v", snapshots)
	read, err := template.FromVirtualMachineTemplate(made)
	must(t, err)
	processed, err := template.Process(read, map[string]string{"NAME": "second"})
	must(t, err)
	second := &virtv1.VirtualMachine{}
	must(t, runtime.DefaultUnstructuredConverter.FromUnstructured(processed.Objects[0].Object, second))
	second.Namespace = namespace
	must(t, c.Create(t.Context(), second))
	g.Eventually(func() error {
		return c.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: "second-system"}, &cdiv1.DataVolume{})
	}, bound, "100ms").Should(gomega.Succeed(), "the second VM has a disk of its own")
}
