package sizes

import (
	"bytes"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"
	virtv1 "kubevirt.io/api/core/v1"
	"kubevirt.io/api/instancetype/v1beta1"

	"github.com/slipway-vm/slipway/controllers/instancetype"
	"github.com/slipway-vm/slipway/internal/supported"
)

const head = "<!-- Generated from catalog/declare by `make generate`. DO NOT EDIT. -->\n# Common instance types and preferences\n\n" +
	"The operator installs these for all namespaces; [instance types and preferences](instancetypes.md) tells how to use them and how to do without.\n" +
	"Where a field is named, a VM is refused for it until Slipway acts on it.\n\n## Instance types\n"

const middle = "\n## Preferences\n\n| name | guest | needs | refused for |\n|---|---|---|---|\n"

func writeSeries(b *bytes.Buffer, series []v1beta1.VirtualMachineClusterInstancetype) {
	if len(series) == 0 {
		return
	}
	first := &series[0]
	name, _, _ := strings.Cut(first.Name, ".")
	fmt.Fprintf(b, "\n### %s: %s\n%s\n", name, first.Annotations["instancetype.kubevirt.io/displayName"], first.Annotations["instancetype.kubevirt.io/description"])
	if fields := refused(&first.Spec, nil); fields != "" {
		fmt.Fprintf(b, "\nRefused for %s.\n", fields)
	}
	b.WriteString("\n| name | virtual CPUs | memory | huge pages |\n|---|---|---|---|\n")
	for i := range series {
		spec, pages := &series[i].Spec, ""
		if spec.Memory.Hugepages != nil {
			pages = spec.Memory.Hugepages.PageSize
		}
		fmt.Fprintf(b, "| `%s` | %d | %s | %s |\n", series[i].Name, spec.CPU.Guest, spec.Memory.Guest.String(), pages)
	}
}

func writePreference(b *bytes.Buffer, p *v1beta1.VirtualMachineClusterPreference) {
	needs := ""
	if r := p.Spec.Requirements; r != nil && r.CPU != nil {
		needs = fmt.Sprintf("%d CPU, %s", r.CPU.Guest, p.Labels["instancetype.kubevirt.io/required-memory"])
	}
	fmt.Fprintf(b, "| `%s` | %s | %s | %s |\n", p.Name, p.Annotations["openshift.io/display-name"], needs, refused(nil, &p.Spec))
}

// refused names the fields for which a VM of this instance type or preference is refused.
func refused(it *v1beta1.VirtualMachineInstancetypeSpec, preference *v1beta1.VirtualMachinePreferenceSpec) string {
	vmi := &virtv1.VirtualMachineInstance{}
	instancetype.Apply(vmi, it, preference, field.NewPath("spec")) // what it requires is not asked here
	var fields []string
	for _, err := range supported.OfObject(supported.VirtualMachineInstance, vmi) {
		text := "`" + strings.TrimPrefix(err.Field, "spec.") + "`"
		if value, ok := err.BadValue.(string); ok && value != "" {
			text += " " + value
		}
		fields = append(fields, text)
	}
	return strings.Join(fields, ", ")
}
