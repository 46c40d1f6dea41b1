package copytemplate

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-vm/slipway/tasks/vmtemplate"
)

// Labels that say what a template is.
const (
	labelType     = "template.kubevirt.io/type"
	typeBase      = "base" // a common template
	typeVM        = "vm"
	labelTemplate = "vm.kubevirt.io/template"
)

// strips are the labels and annotations that a copy leaves out: the names, and all that begin with a prefix.
type strips struct{ names, prefixes []string }

func (s strips) from(values map[string]string) {
	for key := range values {
		if slices.Contains(s.names, key) || slices.ContainsFunc(s.prefixes, func(prefix string) bool { return strings.HasPrefix(key, prefix) }) {
			delete(values, key)
		}
	}
}

var (
	// ties bind an object to the tool that applies it and deletes what is not in its source.
	ties = strips{
		names:    []string{"kubectl.kubernetes.io/last-applied-configuration", "app.kubernetes.io/managed-by", "app.kubernetes.io/instance"},
		prefixes: []string{"argocd.argoproj.io/", "kustomize.toolkit.fluxcd.io/", "helm.toolkit.fluxcd.io/", "meta.helm.sh/"},
	}
	// common is what only a common template may say of itself.
	common = strips{
		names: []string{
			"template.kubevirt.io/version", "template.kubevirt.io/deprecated", "template.kubevirt.io/default-os-variant",
			"template.kubevirt.io/provider", "template.kubevirt.io/provider-support-level", "template.kubevirt.io/provider-url",
			"openshift.io/documentation-url", "openshift.io/provider-display-name", "openshift.io/support-url",
			"operator-sdk/primary-resource", "operator-sdk/primary-resource-type",
			"app.kubernetes.io/component", "app.kubernetes.io/name", "app.kubernetes.io/part-of", "app.kubernetes.io/version",
		},
		prefixes: []string{"os.template.kubevirt.io/", "flavor.template.kubevirt.io/", "workload.template.kubevirt.io/"},
	}
	// commonVM is what the VirtualMachine in a common template says of it.
	commonVM = strips{names: []string{
		"vm.kubevirt.io/flavor", "vm.kubevirt.io/os", "vm.kubevirt.io/workload", "kubevirt.io/domain", "kubevirt.io/size",
		"vm.kubevirt.io/template.revision", "vm.kubevirt.io/template.version",
	}}
)

// duplicated is the copy of a template, not written yet.
type duplicated struct {
	template *unstructured.Unstructured
	// vm is the VirtualMachine in it, when it was a common template's.
	vm map[string]any
}

// duplicate copies source to target, whose name may be empty.
func duplicate(source *unstructured.Unstructured, target client.ObjectKey) (*duplicated, error) {
	c := &duplicated{template: source.DeepCopy()}
	delete(c.template.Object, "metadata")
	delete(c.template.Object, "status")
	c.template.SetNamespace(target.Namespace)
	c.template.SetName(target.Name)
	if target.Name == "" {
		c.template.SetGenerateName(source.GetName() + "-")
	}
	labels, annotations := source.GetLabels(), source.GetAnnotations()
	if labels == nil {
		labels = map[string]string{}
	}
	base := labels[labelType] == typeBase
	for _, values := range []map[string]string{labels, annotations} {
		ties.from(values)
		if base {
			common.from(values)
		}
	}
	labels[labelType] = typeVM
	c.template.SetLabels(labels)
	c.template.SetAnnotations(annotations)
	if !base {
		return c, nil
	}
	return c, c.stripVM(source.GetName())
}

// stripVM takes from the VirtualMachine what it says of the common template, whose name is source.
func (c *duplicated) stripVM(source string) error {
	vm, err := vmtemplate.VirtualMachine(c.template)
	if err != nil {
		if objects, _, _ := unstructured.NestedSlice(c.template.Object, "objects"); len(objects) > 0 {
			first, _ := objects[0].(map[string]any)
			return fmt.Errorf("template %s contains unexpected object: %v, %v: %w", source, first["apiVersion"], first["kind"], err)
		}
		return err
	}
	for _, path := range [][]string{
		{"metadata", "labels"}, {"metadata", "annotations"},
		{"spec", "template", "metadata", "labels"}, {"spec", "template", "metadata", "annotations"},
	} {
		values, found, err := unstructured.NestedStringMap(vm, path...)
		if err != nil {
			return fmt.Errorf("reading the template's VirtualMachine: %w", err)
		}
		if !found {
			continue
		}
		commonVM.from(values)
		if err := unstructured.SetNestedStringMap(vm, values, path...); err != nil {
			return fmt.Errorf("changing the template's VirtualMachine: %w", err)
		}
	}
	c.vm = vm
	return nil
}

// named makes the VirtualMachine of a common template one of the copy, now that its name is known.
func (c *duplicated) named(name string) {
	labels, found, err := unstructured.NestedStringMap(c.vm, "metadata", "labels")
	if c.vm == nil || !found || err != nil || len(name) > 63 {
		return
	}
	labels[labelTemplate] = name
	_ = unstructured.SetNestedStringMap(c.vm, labels, "metadata", "labels") // it was read from there
}
