package processor

import (
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"
	v1 "kubevirt.io/api/core/v1"
)

// Labels of the field for which its Go API has no name.
const (
	labelFrequency = v1.CPUTimerLabel + "tsc-frequency"
	labelScalable  = v1.CPUTimerLabel + "tsc-scalable"
	// labelAtFrequency ends with a frequency at which guests can be scheduled to the node.
	labelAtFrequency = "scheduling.node.kubevirt.io/tsc-frequency-"
)

// obsolete are the models that nobody is to have, with -v1 behind them too, where the KubeVirt object names none.
const obsolete = "486 pentium pentium2 pentium3 pentiumpro coreduo n270 core2duo Conroe athlon phenom qemu64 qemu32 kvm64 kvm32"

// Obsolete are the models of which the KubeVirt object says that they are obsolete; the field's own list where it
// says nothing.
func Obsolete(kubevirt *v1.KubeVirt) map[string]bool {
	if kubevirt != nil && len(kubevirt.Spec.Configuration.ObsoleteCPUModels) > 0 {
		return kubevirt.Spec.Configuration.ObsoleteCPUModels
	}
	models := map[string]bool{}
	for model := range strings.FieldsSeq(obsolete) {
		models[model], models[model+"-v1"] = true, true
	}
	return models
}

// Labels are the labels of a node with processor p, in the field's words. Models that are obsolete get none. A
// processor of which nothing is known, nil, has no labels.
func Labels(p *Processor, obsolete map[string]bool) map[string]string {
	labels := map[string]string{}
	if p == nil {
		return labels
	}
	mark := func(prefix, name string) {
		// What libvirt calls something that no label can be named after cannot be asked for, either.
		if key := prefix + name; name != "" && len(validation.IsQualifiedName(key)) == 0 {
			labels[key] = "true"
		}
	}
	for _, name := range p.Features {
		mark(v1.CPUFeatureLabel, name)
	}
	for _, model := range p.Usable {
		if !obsolete[model] {
			mark(v1.CPUModelLabel, model)
			mark(v1.SupportedHostModelMigrationCPU, model)
		}
	}
	if p.Model != "" {
		mark(v1.HostModelCPULabel, p.Model)
		mark(v1.CPUModelVendorLabel, p.Vendor)
		for _, name := range p.Required {
			mark(v1.HostModelRequiredFeaturesLabel, name)
		}
		if obsolete[p.Model] {
			labels[v1.NodeHostModelIsObsoleteLabel] = "true"
		} else {
			mark(v1.SupportedHostModelMigrationCPU, p.Model)
		}
	}
	if p.Counter != nil {
		frequency := strconv.FormatUint(p.Counter.Frequency, 10)
		labels[labelFrequency], labels[labelScalable] = frequency, strconv.FormatBool(p.Counter.Scalable)
		mark(labelAtFrequency, frequency)
	}
	return labels
}
