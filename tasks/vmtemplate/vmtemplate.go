// Package vmtemplate is what the tasks on templates share: finding a template of either
// kind, and the VirtualMachine in it.
package vmtemplate

import (
	"context"
	"errors"
	"fmt"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	virtv1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-vm/slipway/tasks/declare"
)

// Kinds of templates.
const (
	KindTemplate               = "Template"
	KindVirtualMachineTemplate = "VirtualMachineTemplate"
)

// ParamKind is the name of the parameter that chooses the kind.
const ParamKind = "templateKind"

// Param is the parameter that chooses the kind.
func Param() declare.Param {
	return declare.Param{Name: ParamKind, Description: "Template (template.openshift.io) or VirtualMachineTemplate (template.kubevirt.io); by default whichever of the name there is, a Template first."}
}

// Hint tells forms of which objects to offer the names.
var Hint = declare.ObjectHint{APIVersion: "template.openshift.io/v1", Kind: KindTemplate}

// Rules are the rights to the verbs on templates of both kinds.
func Rules(verbs ...string) []rbacv1.PolicyRule {
	return []rbacv1.PolicyRule{
		{APIGroups: []string{"template.openshift.io"}, Resources: []string{"templates"}, Verbs: verbs},
		{APIGroups: []string{"template.kubevirt.io"}, Resources: []string{"virtualmachinetemplates"}, Verbs: verbs},
	}
}

// served are the versions of each kind, the preferred first.
var served = map[string][]schema.GroupVersionKind{
	KindTemplate: {{Group: "template.openshift.io", Version: "v1", Kind: KindTemplate}},
	KindVirtualMachineTemplate: {
		{Group: "template.kubevirt.io", Version: "v1beta1", Kind: KindVirtualMachineTemplate},
		{Group: "template.kubevirt.io", Version: "v1alpha1", Kind: KindVirtualMachineTemplate},
	},
}

// errNotServed says that the cluster does not know a kind.
var errNotServed = errors.New("the cluster does not serve it")

// CheckKind returns an error when kind is not empty and names no kind of templates.
func CheckKind(kind string) error {
	if _, known := served[kind]; kind != "" && !known {
		return fmt.Errorf("%s: %q is not known; write %s or %s", ParamKind, kind, KindTemplate, KindVirtualMachineTemplate)
	}
	return nil
}

// Get reads the template that key names, of the given kind, or of the first kind that has one when kind is empty.
func Get(ctx context.Context, c client.Client, kind string, key client.ObjectKey) (*unstructured.Unstructured, error) {
	if err := CheckKind(kind); err != nil {
		return nil, err
	}
	if kind != "" {
		found, err := get(ctx, c, kind, key)
		if err != nil {
			return nil, fmt.Errorf("getting %s %s: %w", kind, key, err)
		}
		return found, nil
	}
	found, first := get(ctx, c, KindTemplate, key)
	if first == nil {
		return found, nil
	}
	if !missing(first) {
		return nil, fmt.Errorf("getting Template %s: %w", key, first)
	}
	found, second := get(ctx, c, KindVirtualMachineTemplate, key)
	switch {
	case second == nil:
		return found, nil
	case !missing(second):
		return nil, fmt.Errorf("getting template %s: there is no Template of that name (%w); getting a VirtualMachineTemplate: %w", key, first, second)
	case !errors.Is(first, errNotServed):
		return nil, fmt.Errorf("getting template %s: %w, nor is there a VirtualMachineTemplate of that name", key, first)
	case !errors.Is(second, errNotServed):
		return nil, fmt.Errorf("getting template %s: %w", key, second)
	}
	return nil, fmt.Errorf("getting template %s: the cluster serves neither Template (template.openshift.io) nor VirtualMachineTemplate (template.kubevirt.io); Slipway's operator installs both", key)
}

// missing says that there is no such template, for whatever reason.
func missing(err error) bool { return errors.Is(err, errNotServed) || apierrors.IsNotFound(err) }

func get(ctx context.Context, c client.Client, kind string, key client.ObjectKey) (*unstructured.Unstructured, error) {
	for _, gvk := range served[kind] {
		found := &unstructured.Unstructured{}
		found.SetGroupVersionKind(gvk)
		err := c.Get(ctx, key, found)
		if err == nil {
			return found, nil
		}
		if !meta.IsNoMatchError(err) {
			return nil, err //nolint:wrapcheck // Get says what was read
		}
	}
	return nil, fmt.Errorf("%w: %s", errNotServed, served[kind][0].Group)
}

// VirtualMachine returns the VirtualMachine in a template of either kind, as a tree that belongs to
// the template: what is changed in it is changed in the template.
func VirtualMachine(template *unstructured.Unstructured) (map[string]any, error) {
	if template.GetKind() == KindVirtualMachineTemplate {
		spec, _ := template.Object["spec"].(map[string]any)
		if vm, ok := spec["virtualMachine"].(map[string]any); ok {
			return vm, nil
		}
		return nil, errors.New("no VM object found in the template")
	}
	objects, _ := template.Object["objects"].([]any)
	for _, object := range objects {
		tree, _ := object.(map[string]any)
		apiVersion, _ := tree["apiVersion"].(string)
		if tree["kind"] == "VirtualMachine" && strings.HasPrefix(apiVersion, virtv1.SchemeGroupVersion.Group+"/") {
			return tree, nil
		}
	}
	return nil, errors.New("no VM object found in the template")
}

// writes is how often Update tries to write before it says that others keep writing too.
const writes = 20

// Update reads the template and writes it back as change left it. When another wrote it
// meanwhile, that is done again with what is there then, so change may be called several times.
func Update(ctx context.Context, c client.Client, kind string, key client.ObjectKey, change func(*unstructured.Unstructured) error) (*unstructured.Unstructured, error) {
	for attempt := 1; ; attempt++ {
		found, err := Get(ctx, c, kind, key)
		if err != nil {
			return nil, err
		}
		if err := change(found); err != nil {
			return nil, fmt.Errorf("changing %s %s: %w", found.GetKind(), key, err)
		}
		err = c.Update(ctx, found)
		if err == nil {
			return found, nil
		}
		if !apierrors.IsConflict(err) || attempt == writes {
			return nil, fmt.Errorf("updating %s %s: %w", found.GetKind(), key, err)
		}
	}
}
