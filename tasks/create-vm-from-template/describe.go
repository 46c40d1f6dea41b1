package createvmfromtemplate

import (
	"cmp"
	"maps"
	"slices"
	"strconv"
	"strings"

	templatev1 "github.com/openshift/api/template/v1"
	virtv1 "kubevirt.io/api/core/v1"
)

// Labels and annotations by which the field's clients know what a VM was made from.
const (
	labelTemplate          = "vm.kubevirt.io/template"
	labelTemplateNamespace = "vm.kubevirt.io/template.namespace"
	prefixOS               = "os.template.kubevirt.io/"
	prefixWorkload         = "workload.template.kubevirt.io/"
	prefixFlavor           = "flavor.template.kubevirt.io/"
	prefixOSName           = "name.os.template.kubevirt.io/"
)

// describe puts on vm which template it is from, and the template's operating system, workload and flavor.
func describe(vm *virtv1.VirtualMachine, tmpl *templatev1.Template) {
	labels := map[string]string{}
	for _, prefix := range []string{prefixFlavor, prefixWorkload, prefixOS} {
		if name := flag(tmpl.Labels, prefix); name != "" {
			labels[prefix+name] = "true"
			if title, ok := tmpl.Annotations[prefixOSName+name]; ok && prefix == prefixOS {
				merge(&vm.Annotations, map[string]string{prefixOSName + name: title})
			}
		}
	}
	merge(&vm.Spec.Template.ObjectMeta.Labels, labels)
	labels[labelTemplate], labels[labelTemplateNamespace] = tmpl.Name, tmpl.Namespace
	for key, value := range labels {
		if len(value) > 63 { // no label can hold it
			delete(labels, key)
		}
	}
	merge(&vm.Labels, labels)
}

func merge(into *map[string]string, more map[string]string) {
	if *into == nil {
		*into = map[string]string{}
	}
	maps.Copy(*into, more)
}

// flag returns the end of the label with prefix that is "true"; of several the newest, rhel8.10 rather than rhel8.9.
func flag(labels map[string]string, prefix string) string {
	var names []string
	for key, value := range labels {
		if name, ok := strings.CutPrefix(key, prefix); ok && value == "true" {
			names = append(names, name)
		}
	}
	if len(names) == 0 {
		return ""
	}
	return slices.MaxFunc(names, natural)
}

// natural compares names as people do: runs of digits by their value.
func natural(a, b string) int {
	for a != "" && b != "" {
		x, y := leading(a), leading(b)
		a, b = a[len(x):], b[len(y):]
		m, errX := strconv.ParseUint(x, 10, 64)
		n, errY := strconv.ParseUint(y, 10, 64)
		order := cmp.Compare(x, y)
		if errX == nil && errY == nil {
			order = cmp.Compare(m, n)
		}
		if order != 0 {
			return order
		}
	}
	return cmp.Compare(len(a), len(b))
}

// leading returns the digits, or what is no digit, at the beginning of text.
func leading(text string) string {
	digit := func(i int) bool { return text[i] >= '0' && text[i] <= '9' }
	end := 1
	for end < len(text) && digit(end) == digit(0) {
		end++
	}
	return text[:end]
}
