//go:build integration

package controllers

import (
	"testing"

	"github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	virtv1 "kubevirt.io/api/core/v1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-vm/slipway/internal/keep"
	"github.com/slipway-vm/slipway/tests/fixture"
)

// A VM hears of the DataVolumes that are kept for it, though it does not own them.
func TestAVMThatKeepsItsVolumesHearsOfThem(t *testing.T) {
	c := start(t)
	namespace := c.namespace(t)
	vm := newVM(namespace, "web")
	fixture.Strategy(virtv1.RunStrategyHalted)(vm)
	c.snappedClasses(t)
	disk := fixture.DataVolume(namespace, "data", "1Gi")
	disk.Spec.Storage.StorageClassName, disk.Spec.Storage.AccessModes = new("snapped"), []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}
	fixture.Template("data", disk)(vm)
	vm.Annotations = map[string]string{keep.AnnotationVolumes: "true"}
	must(t, c.Create(t.Context(), vm))
	key := client.ObjectKey{Namespace: namespace, Name: "data"}
	c.vmIs(t, client.ObjectKeyFromObject(vm), virtv1.VirtualMachineStatusProvisioning) // nothing fills its disk here
	dv, claim := &cdiv1.DataVolume{}, &corev1.PersistentVolumeClaim{}
	must(t, c.Get(t.Context(), key, dv))
	if len(dv.OwnerReferences) > 0 || dv.Labels[keep.LabelFor] != string(vm.UID) {
		t.Errorf("the DataVolume has the owners %+v and the labels %v", dv.OwnerReferences, dv.Labels)
	}
	gomega.NewWithT(t).Eventually(func() error {
		if err := c.Get(t.Context(), key, claim); err != nil {
			return err
		}
		claim.Status.Phase = corev1.ClaimLost
		return c.Status().Update(t.Context(), claim)
	}, bound, "100ms").Should(gomega.Succeed())
	if claim.Labels[keep.LabelFor] != "" {
		t.Errorf("the claim, which goes with its DataVolume, has the labels %v", claim.Labels)
	}
	c.vmIs(t, client.ObjectKeyFromObject(vm), virtv1.VirtualMachineStatusDataVolumeError)
}
