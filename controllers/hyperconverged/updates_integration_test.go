//go:build integration

package hyperconverged

import (
	"fmt"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	virtv1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	hcov1 "github.com/slipway-vm/slipway/internal/api/hco/v1"
	hcov1beta1 "github.com/slipway-vm/slipway/internal/api/hco/v1beta1"
	"github.com/slipway-vm/slipway/internal/names"
)

// countsFormerLaunchers follows VMIs that get the label of a former launcher, lose it, and go.
func countsFormerLaunchers(t *testing.T, c client.WithWatch, options Options) {
	t.Helper()
	counted := func(want int) {
		t.Helper()
		key := client.ObjectKey{Namespace: options.Namespace, Name: names.KubeVirtName}
		wait(t, c, &virtv1.KubeVirtList{}, key, fmt.Sprintf("%d VMIs with a former launcher", want), func(k *virtv1.KubeVirt) bool {
			got := k.Status.OutdatedVirtualMachineInstanceWorkloads
			return got != nil && *got == want
		})
	}
	counted(0)
	var vmis []*virtv1.VirtualMachineInstance
	for _, name := range []string{"a", "b", "c"} {
		vmi := &virtv1.VirtualMachineInstance{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}}
		if err := c.Create(t.Context(), vmi); err != nil {
			t.Fatal(err)
		}
		vmis = append(vmis, vmi)
	}
	label := func(vmi *virtv1.VirtualMachineInstance, labels map[string]string) {
		t.Helper()
		changed := vmi.DeepCopy()
		changed.Labels = labels
		if err := c.Patch(t.Context(), changed, client.MergeFrom(vmi)); err != nil {
			t.Fatal(err)
		}
		*vmi = *changed
	}
	label(vmis[0], map[string]string{virtv1.OutdatedLauncherImageLabel: "true"})
	label(vmis[1], map[string]string{virtv1.OutdatedLauncherImageLabel: ""}) // as KubeVirt writes it
	counted(2)
	label(vmis[1], nil)
	counted(1)
	for _, vmi := range vmis {
		if err := c.Delete(t.Context(), vmi); err != nil {
			t.Fatal(err)
		}
	}
	counted(0)
}

// passesUpdatesOn sets the strategy for VMs with a former launcher in both versions.
func passesUpdatesOn(t *testing.T, c client.WithWatch, options Options) {
	t.Helper()
	flat := &hcov1beta1.HyperConverged{}
	get(t, c, client.ObjectKeyFromObject(theObject(options)), flat)
	before := flat.DeepCopy()
	flat.Spec.WorkloadUpdateStrategy = &hcov1.WorkloadUpdateStrategy{
		WorkloadUpdateMethods: []virtv1.WorkloadUpdateMethod{virtv1.WorkloadUpdateMethodLiveMigrate}, BatchEvictionSize: new(3),
	}
	wantRefusal(t, c.Patch(t.Context(), flat.DeepCopy(), client.MergeFrom(before)), "workloadUpdateMethods[0]: there is no live migration yet")
	flat.Spec.WorkloadUpdateStrategy.WorkloadUpdateMethods[0] = virtv1.WorkloadUpdateMethodEvict
	if err := c.Patch(t.Context(), flat, client.MergeFrom(before)); err != nil {
		t.Fatal(err)
	}
	key := client.ObjectKey{Namespace: options.Namespace, Name: names.KubeVirtName}
	wait(t, c, &virtv1.KubeVirtList{}, key, "the strategy", func(k *virtv1.KubeVirt) bool {
		s := k.Spec.WorkloadUpdateStrategy
		return len(s.WorkloadUpdateMethods) == 1 && s.WorkloadUpdateMethods[0] == virtv1.WorkloadUpdateMethodEvict && s.BatchEvictionSize != nil && *s.BatchEvictionSize == 3
	})
	stored := theObject(options)
	get(t, c, client.ObjectKeyFromObject(stored), stored)
	if s := stored.Spec.Virtualization.WorkloadUpdateStrategy; s == nil || *s.BatchEvictionSize != 3 {
		t.Fatalf("v1 says %+v", s)
	}
	changed := stored.DeepCopy()
	changed.Spec.Virtualization.WorkloadUpdateStrategy = nil
	if err := c.Patch(t.Context(), changed, client.MergeFrom(stored)); err != nil {
		t.Fatal(err)
	}
	wait(t, c, &virtv1.KubeVirtList{}, key, "no strategy", func(k *virtv1.KubeVirt) bool {
		s := k.Spec.WorkloadUpdateStrategy
		return len(s.WorkloadUpdateMethods) == 0 && s.BatchEvictionSize == nil
	})
}
