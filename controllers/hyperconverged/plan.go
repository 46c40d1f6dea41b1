package hyperconverged

import (
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/slipway-vm/slipway/controllers/hyperconverged/components"
	"github.com/slipway-vm/slipway/controllers/hyperconverged/render"
	hcov1 "github.com/slipway-vm/slipway/internal/api/hco/v1"
	"github.com/slipway-vm/slipway/internal/names"
)

// LabelComponent marks every object that the operator installed, with the component it
// belongs to. What bears it and is no longer wanted is deleted.
const LabelComponent = names.Domain + "component"

// defaultVerbosity is what components log with unless the HyperConverged object says otherwise.
const defaultVerbosity int32 = 2

// plan returns every object that is wanted of the components for hco, as the operands ask, in the order in which to apply them.
func plan(hco *hcov1.HyperConverged, asked infra, base render.Values) ([]*unstructured.Unstructured, error) {
	var wanted []*unstructured.Unstructured
	for _, component := range components.All {
		values := base
		values.Verbosity = verbosity(hco, component.Name)
		objects, err := render.Folder(components.Files(), component.Name, values)
		if err != nil {
			return nil, fmt.Errorf("planning component %s: %w", component.Name, err)
		}
		if component.Name == components.Monitoring {
			rules, err := alertRules(base.Namespace)
			if err != nil {
				return nil, err
			}
			objects = append(objects, rules...)
		}
		if err := render.Place(objects, asked.placements[component.Placement]); err != nil {
			return nil, fmt.Errorf("planning component %s: %w", component.Name, err)
		}
		if err := asked.shape(objects); err != nil {
			return nil, fmt.Errorf("planning component %s: %w", component.Name, err)
		}
		mark(objects, component.Name, base.Version)
		slices.SortStableFunc(objects, podsLast)
		wanted = append(wanted, objects...)
	}
	return wanted, nil
}

// podsLast orders what starts pods behind what these need.
func podsLast(a, b *unstructured.Unstructured) int {
	switch {
	case render.HasPods(a) == render.HasPods(b):
		return 0
	case render.HasPods(a):
		return 1
	}
	return -1
}

// planBundle returns the objects of bundle for each of namespaces.
func planBundle(bundle Bundle, namespaces []string, base render.Values) ([]*unstructured.Unstructured, error) {
	var wanted []*unstructured.Unstructured
	for _, namespace := range namespaces {
		objects, err := render.Bundle(bundle.Files, images(base))
		if err != nil {
			return nil, fmt.Errorf("planning %s for namespace %s: %w", bundle.Name, namespace, err)
		}
		mark(objects, bundle.Name, base.Version)
		for _, object := range objects {
			intoNamespace(object, namespace)
		}
		wanted = append(wanted, objects...)
	}
	return wanted, nil
}

// images maps the names that bundles give our images to those of this installation.
func images(base render.Values) map[string]string {
	return map[string]string{
		"ghcr.io/slipway-vm/slipway:devel":          base.SlipwayImage,
		"ghcr.io/slipway-vm/slipway-launcher:devel": base.LauncherImage,
		"ghcr.io/slipway-vm/slipway-guestfs:devel":  base.GuestfsImage,
	}
}

// intoNamespace sets the namespace of object and of the ServiceAccounts that it binds.
// Cluster-wide roles of a bundle stay what they are.
func intoNamespace(object *unstructured.Unstructured, namespace string) {
	if object.GetKind() != "ClusterRole" && object.GetKind() != "ClusterRoleBinding" {
		object.SetNamespace(namespace)
	}
	subjects, found, err := unstructured.NestedSlice(object.Object, "subjects")
	if err != nil || !found {
		return
	}
	for _, item := range subjects {
		if subject, ok := item.(map[string]any); ok && subject["kind"] == "ServiceAccount" {
			subject["namespace"] = namespace
		}
	}
	object.Object["subjects"] = subjects
}

func mark(objects []*unstructured.Unstructured, component, version string) {
	for _, object := range objects {
		labels := object.GetLabels()
		if labels == nil {
			labels = map[string]string{}
		}
		labels[LabelComponent] = component
		labels[names.LabelManagedBy] = names.ManagedBy
		labels[names.LabelPartOf] = "hyperconverged-cluster"
		labels[names.LabelVersion] = version
		object.SetLabels(labels)
	}
}

func verbosity(hco *hcov1.HyperConverged, component string) int32 {
	chosen := hco.Spec.Deployment.LogVerbosityConfig.Kubevirt
	byComponent := map[string]*int32{
		"virt-api": chosen.VirtAPI, "virt-controller": chosen.VirtController, "virt-handler": chosen.VirtHandler,
	}
	if set := byComponent[component]; set != nil {
		return *set
	}
	return defaultVerbosity
}
