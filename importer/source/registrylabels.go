package source

import (
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"
)

// maxLabels bounds what an image may ask for.
const maxLabels = 16

// labelPrefixes are the beginnings of an image's variables that ask for a label, and the label's beginning.
var labelPrefixes = []struct{ variable, label string }{
	{"INSTANCETYPE_KUBEVIRT_IO_DEFAULT_", "instancetype.kubevirt.io/default-"},
	{"KUBEVIRT_IO_", "kubevirt.io/"},
}

// labelsOf returns the labels that variables ask for: INSTANCETYPE_KUBEVIRT_IO_DEFAULT_PREFERENCE=debian is
// instancetype.kubevirt.io/default-preference: debian. What can be no label is left out.
func labelsOf(variables []string) map[string]string {
	labels := map[string]string{}
	for _, variable := range variables {
		name, value, _ := strings.Cut(variable, "=")
		for _, p := range labelPrefixes {
			rest, ok := strings.CutPrefix(name, p.variable)
			if !ok {
				continue
			}
			label := p.label + strings.ToLower(strings.ReplaceAll(rest, "_", "-"))
			if len(validation.IsQualifiedName(label)) == 0 && len(validation.IsValidLabelValue(value)) == 0 && len(labels) < maxLabels {
				labels[label] = value
			}
			break
		}
	}
	return labels
}
