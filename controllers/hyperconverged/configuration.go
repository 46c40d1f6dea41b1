package hyperconverged

import (
	"fmt"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"

	hcov1 "github.com/slipway-vm/slipway/internal/api/hco/v1"
)

// configurationAsked is what hco says of the KubeVirt object's spec.configuration. What it leaves out is left to who
// edits that object.
func configurationAsked(hco *hcov1.HyperConverged) (map[string]any, error) {
	said := map[string]any{
		"developerConfiguration":        map[string]any{"useEmulation": false}, // never empty, see updatesAsked
		"commonInstancetypesDeployment": map[string]any{"enabled": sizesEnabled(hco)},
	}
	if options := hco.Spec.Virtualization.VirtualMachineOptions; options != nil {
		if switches := switchesAsked(options); len(switches) > 0 {
			said["virtualMachineOptions"] = switches
		}
		if options.DefaultCPUModel != nil {
			said["cpuModel"] = *options.DefaultCPUModel
		}
		if options.DefaultRuntimeClass != nil {
			said["defaultRuntimeClass"] = *options.DefaultRuntimeClass
		}
	}
	if config := hco.Spec.WorkloadSources.InstancetypeConfig; config != nil && config.ReferencePolicy != nil {
		said["instancetype"] = map[string]any{"referencePolicy": string(*config.ReferencePolicy)}
	}
	if strategy := hco.Spec.Virtualization.RoleAggregationStrategy; strategy != nil {
		said["roleAggregationStrategy"] = string(*strategy)
	}
	if selector := hco.Spec.Virtualization.AutoCPULimitNamespaceLabelSelector; selector != nil {
		asked, err := runtime.DefaultUnstructuredConverter.ToUnstructured(selector)
		if err != nil {
			return nil, fmt.Errorf("encoding autoCPULimitNamespaceLabelSelector of HyperConverged %s: %w", hco.Name, err)
		}
		said["autoCPULimitNamespaceLabelSelector"] = asked
	}
	if err := speak(hco, said); err != nil {
		return nil, err
	}
	return said, nil
}

// switchesAsked turns switches into what the KubeVirt object has in their place: an empty object for one that is on.
func switchesAsked(options *hcov1.VirtualMachineOptions) map[string]any {
	said := map[string]any{}
	if ptr.Deref(options.DisableFreePageReporting, false) {
		said["disableFreePageReporting"] = map[string]any{}
	}
	if ptr.Deref(options.DisableSerialConsoleLog, false) {
		said["disableSerialConsoleLog"] = map[string]any{}
	}
	return said
}
