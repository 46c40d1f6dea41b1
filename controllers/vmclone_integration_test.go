//go:build integration

package controllers

import (
	"strings"
	"testing"

	"github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clonev1 "kubevirt.io/api/clone/v1beta1"
	virtv1 "kubevirt.io/api/core/v1"
	snapshotv1 "kubevirt.io/api/snapshot/v1beta1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-vm/slipway/tests/fixture"
)

// newClone makes a clone of VM web.
func newClone(namespace, target string) *clonev1.VirtualMachineClone {
	clone := &clonev1.VirtualMachineClone{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "c"}}
	clone.Spec.Source = &corev1.TypedLocalObjectReference{APIGroup: new("kubevirt.io"), Kind: "VirtualMachine", Name: "web"}
	clone.Spec.Target = &corev1.TypedLocalObjectReference{APIGroup: new("kubevirt.io"), Kind: "VirtualMachine", Name: target}
	return clone
}

// All that Slipway runs together makes a second VM; the test is the storage driver.
func TestAVMIsCloned(t *testing.T) {
	c := start(t)
	g := gomega.NewWithT(t)
	namespace := c.namespace(t)
	c.snappedClasses(t)
	c.snapped(t, namespace, "root")
	c.snapped(t, namespace, "data")
	vm := newVM(namespace, "web")
	for _, option := range []fixture.VMOption{
		fixture.Strategy(virtv1.RunStrategyHalted), fixture.Template("system", fixture.DataVolume(namespace, "root", "1Gi")), fixture.Claim("data", "data"),
	} {
		option(vm)
	}
	vm.Labels = map[string]string{"keep": "1", "drop": "2"}
	vm.Spec.Template.Spec.Domain.Firmware = &virtv1.Firmware{UUID: "11111111-1111-4111-8111-111111111111", Serial: "s-1"}
	must(t, c.Create(t.Context(), vm))
	clone := newClone(namespace, "copy")
	clone.Spec.LabelFilters, clone.Spec.NewSMBiosSerial = []string{"*", "!drop"}, new("s-2")
	clone.Spec.VolumeNamePolicy = new(clonev1.VolumeNamePolicyPrefixTargetName)
	must(t, c.Create(t.Context(), clone))
	g.Eventually(func() (bool, error) {
		if err := c.play(t, namespace); err != nil {
			return false, err
		}
		err := c.Get(t.Context(), client.ObjectKeyFromObject(clone), clone)
		return clone.Status.Phase == clonev1.Succeeded && clone.Status.RestoreName == nil && clone.Status.SnapshotName == nil, err
	}, bound, "100ms").Should(gomega.BeTrue(), "the clone is done: %+v", clone)

	made := &virtv1.VirtualMachine{}
	must(t, c.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: *clone.Status.TargetName}, made))
	spec := &made.Spec.Template.Spec
	if made.Labels["keep"] != "1" || made.Labels["drop"] != "" || spec.Domain.Firmware.UUID != "" || spec.Domain.Firmware.Serial != "s-2" || *made.Spec.RunStrategy != virtv1.RunStrategyHalted {
		t.Errorf("the VM is %+v", made)
	}
	snapshots, restores := &snapshotv1.VirtualMachineSnapshotList{}, &snapshotv1.VirtualMachineRestoreList{}
	g.Eventually(func() (int, error) {
		if err := c.List(t.Context(), snapshots, client.InNamespace(namespace)); err != nil {
			return 0, err
		}
		err := c.List(t.Context(), restores, client.InNamespace(namespace))
		return len(snapshots.Items) + len(restores.Items), err
	}, bound, "100ms").Should(gomega.BeZero(), "what it was made with is gone: %+v, %+v", snapshots, restores)
	g.Eventually(func() (cdiv1.DataVolumePhase, error) {
		dv := &cdiv1.DataVolume{}
		err := c.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: "copy-system"}, dv)
		return dv.Status.Phase, err
	}, bound, "100ms").Should(gomega.Equal(cdiv1.Succeeded), "its DataVolume has taken over the claim")
	must(t, c.mergePatch(t, made, map[string]any{"spec": map[string]any{"runStrategy": "Always"}}))
	g.Eventually(func() error {
		return c.Get(t.Context(), client.ObjectKeyFromObject(made), &virtv1.VirtualMachineInstance{})
	}, bound, "100ms").Should(gomega.Succeed(), "it starts")
}

// What cannot be cloned is refused with its path, in both versions.
func TestABadCloneIsRefused(t *testing.T) {
	c := start(t)
	namespace := c.namespace(t)
	for want, change := range map[string]func(*clonev1.VirtualMachineCloneSpec){
		`spec.target.name: Invalid value: "web": Target name cannot be equal to source name`: func(s *clonev1.VirtualMachineCloneSpec) { s.Target.Name = "web" },
		`spec.labelFilters[0]: Invalid value: "!": a negation character is not`:              func(s *clonev1.VirtualMachineCloneSpec) { s.LabelFilters = []string{"!"} },
		`spec.volumeNamePolicy: Unsupported value: "InPlace"`: func(s *clonev1.VirtualMachineCloneSpec) { // a restore's alone: the source keeps its claims
			s.VolumeNamePolicy = new(clonev1.VolumeNamePolicy("InPlace"))
		},
	} {
		clone := newClone(namespace, "copy")
		change(&clone.Spec)
		if err := c.Create(t.Context(), clone); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %s", err, want)
		}
	}
}
