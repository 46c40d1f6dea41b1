//go:build integration

package hyperconverged

import (
	"fmt"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	virtv1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	hcov1 "github.com/slipway-vm/slipway/internal/api/hco/v1"
	hcov1beta1 "github.com/slipway-vm/slipway/internal/api/hco/v1beta1"
	"github.com/slipway-vm/slipway/internal/names"
	"github.com/slipway-vm/slipway/internal/scheme"
)

// TestUpdatesOfVMs follows VMIs that get the label of a former launcher, lose it, and go, and what
// is to become of them.
func TestUpdatesOfVMs(t *testing.T) {
	c, config, options := startAPIServer(t)
	startRun(t, c, config, options)
	var vmis []*virtv1.VirtualMachineInstance // before virt-api, which nobody serves here, would be asked
	for _, name := range []string{"a", "b", "c"} {
		vmi := &virtv1.VirtualMachineInstance{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}}
		if err := c.Create(t.Context(), vmi); err != nil {
			t.Fatal(err)
		}
		vmis = append(vmis, vmi)
	}
	if err := c.Create(t.Context(), theObject(options)); err != nil {
		t.Fatal(err)
	}
	countsFormerLaunchers(t, c, asController(t, config, options), options, vmis)
	passesUpdatesOn(t, c, options)
	passesConfigurationOn(t, c, options)
}

// asController is a client with virt-controller's rights, for which virt-api is not asked.
func asController(t *testing.T, config *rest.Config, options Options) client.Client {
	t.Helper()
	config = rest.CopyConfig(config)
	config.Impersonate = rest.ImpersonationConfig{
		UserName: "system:serviceaccount:" + options.Namespace + ":virt-controller",
		Groups:   []string{"system:serviceaccounts", "system:authenticated"},
	}
	c, err := client.New(config, client.Options{Scheme: scheme.New()})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func countsFormerLaunchers(t *testing.T, c client.WithWatch, controller client.Client, options Options, vmis []*virtv1.VirtualMachineInstance) {
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
	label := func(vmi *virtv1.VirtualMachineInstance, labels map[string]string) {
		t.Helper()
		var err error
		eventually(t, "virt-controller may write labels", func() bool {
			changed := vmi.DeepCopy()
			changed.Labels = labels
			if err = controller.Patch(t.Context(), changed, client.MergeFrom(vmi)); err == nil {
				*vmi = *changed
			} else {
				t.Log(err)
			}
			return err == nil
		})
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
	wantRefusal(t, c.Patch(t.Context(), flat.DeepCopy(), client.MergeFrom(before)), `workloadUpdateMethods[0]: Invalid value: "LiveMigrate": there is no live migration yet`)
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
		return len(s.WorkloadUpdateMethods) == 0 && s.BatchEvictionSize != nil && *s.BatchEvictionSize == 10
	})
}
