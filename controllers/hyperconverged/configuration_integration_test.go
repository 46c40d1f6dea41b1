//go:build integration

package hyperconverged

import (
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	virtv1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	hcov1 "github.com/slipway-vm/slipway/internal/api/hco/v1"
	hcov1beta1 "github.com/slipway-vm/slipway/internal/api/hco/v1beta1"
	"github.com/slipway-vm/slipway/internal/names"
)

// passesConfigurationOn sets what all VMs are given, in both versions and by a patch, and takes it back.
func passesConfigurationOn(t *testing.T, c client.WithWatch, options Options) {
	t.Helper()
	edit := func(change func(*hcov1beta1.HyperConverged)) {
		t.Helper()
		flat := &hcov1beta1.HyperConverged{}
		get(t, c, client.ObjectKeyFromObject(theObject(options)), flat)
		before := flat.DeepCopy()
		change(flat)
		if err := c.Patch(t.Context(), flat, client.MergeFrom(before)); err != nil {
			t.Fatal(err)
		}
	}
	said := func(what string, is func(virtv1.KubeVirtConfiguration) bool) {
		t.Helper()
		key := client.ObjectKey{Namespace: options.Namespace, Name: names.KubeVirtName}
		wait(t, c, &virtv1.KubeVirtList{}, key, what, func(k *virtv1.KubeVirt) bool { return is(k.Spec.Configuration) })
	}
	edit(func(hco *hcov1beta1.HyperConverged) {
		hco.Spec.VirtualMachineOptions = &hcov1.MachineSwitches{DisableSerialConsoleLog: new(true)}
		hco.Spec.DefaultCPUModel = new("Nehalem")
		hco.Spec.RoleAggregationStrategy = new(virtv1.RoleAggregationStrategyManual)
		hco.Spec.InstancetypeConfig = &virtv1.InstancetypeConfiguration{ReferencePolicy: new(virtv1.Expand)}
		hco.Spec.ResourceRequirements.AutoCPULimitNamespaceLabelSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"limit": "yes"}}
		hco.Annotations = map[string]string{hcov1.AnnotationKubeVirtPatch: `[{"op":"add","path":"/spec/configuration/smbios","value":{"family":"Example"}}]`}
	})
	said("what is set", func(k virtv1.KubeVirtConfiguration) bool {
		return k.VirtualMachineOptions != nil && k.VirtualMachineOptions.DisableSerialConsoleLog != nil && k.VirtualMachineOptions.DisableFreePageReporting == nil &&
			k.SMBIOSConfig != nil && k.SMBIOSConfig.Family == "Example" && k.CPUModel == "Nehalem" &&
			k.Instancetype != nil && k.Instancetype.ReferencePolicy != nil && *k.Instancetype.ReferencePolicy == virtv1.Expand &&
			k.AutoCPULimitNamespaceLabelSelector != nil && k.AutoCPULimitNamespaceLabelSelector.MatchLabels["limit"] == "yes"
	})
	aggregated := func(want string) {
		t.Helper()
		wait(t, c, &rbacv1.ClusterRoleList{}, client.ObjectKey{Name: "kubevirt.io:edit"}, "aggregated: "+want, func(role *rbacv1.ClusterRole) bool {
			return role.Labels[aggregateLabel+"edit"] == want
		})
	}
	aggregated("false")
	stored := theObject(options)
	get(t, c, client.ObjectKeyFromObject(stored), stored)
	if got := stored.Spec.Virtualization.VirtualMachineOptions; got == nil || got.DisableSerialConsoleLog == nil || !*got.DisableSerialConsoleLog {
		t.Errorf("v1 says %+v", got)
	}
	edit(func(hco *hcov1beta1.HyperConverged) {
		hco.Spec.DefaultCPUModel, hco.Spec.InstancetypeConfig, hco.Spec.RoleAggregationStrategy = nil, nil, nil
		hco.Spec.VirtualMachineOptions, hco.Spec.ResourceRequirements.AutoCPULimitNamespaceLabelSelector, hco.Annotations = nil, nil, nil
	})
	said("what is taken back", func(k virtv1.KubeVirtConfiguration) bool {
		return k.CPUModel == "" && (k.VirtualMachineOptions == nil || k.VirtualMachineOptions.DisableSerialConsoleLog == nil) && (k.SMBIOSConfig == nil || k.SMBIOSConfig.Family == "") &&
			(k.AutoCPULimitNamespaceLabelSelector == nil || len(k.AutoCPULimitNamespaceLabelSelector.MatchLabels) == 0)
	})
	aggregated("true")
}
