package pod

import (
	virtv1 "kubevirt.io/api/core/v1"
)

// policyRequire is the policy of features without which a guest does not start, and of those that name none.
const policyRequire = "require"

// ProcessorLabels are those of the nodes whose processor can be what vmi asks for: by the name of a model, which is
// the same on every node, and by the features that it requires.
func ProcessorLabels(vmi *virtv1.VirtualMachineInstance) map[string]string {
	labels := map[string]string{}
	cpu := vmi.Spec.Domain.CPU
	if cpu == nil {
		return labels
	}
	if cpu.Model != "" && cpu.Model != virtv1.CPUModeHostModel && cpu.Model != virtv1.CPUModeHostPassthrough {
		labels[virtv1.CPUModelLabel+cpu.Model] = "true"
	}
	for _, feature := range cpu.Features {
		if feature.Policy == "" || feature.Policy == policyRequire {
			labels[virtv1.CPUFeatureLabel+feature.Name] = "true"
		}
	}
	return labels
}
