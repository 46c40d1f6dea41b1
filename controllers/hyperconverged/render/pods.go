package render

import (
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	sdkapi "kubevirt.io/controller-lifecycle-operator-sdk/api"
)

// podSpec is where a workload's pods are described.
var podSpec = []string{"spec", "template", "spec"}

// HasPods says whether object is a Deployment or a DaemonSet.
func HasPods(object *unstructured.Unstructured) bool {
	return object.GetKind() == "Deployment" || object.GetKind() == "DaemonSet"
}

// Place puts the pods of the Deployments and DaemonSets among objects where placement
// says. Its node selector and tolerations add to those of the YAML, its affinity replaces theirs.
func Place(objects []*unstructured.Unstructured, placement *sdkapi.NodePlacement) error {
	if placement == nil {
		return nil
	}
	wanted, err := runtime.DefaultUnstructuredConverter.ToUnstructured(placement)
	if err != nil {
		return fmt.Errorf("converting the node placement: %w", err)
	}
	for _, object := range objects {
		if !HasPods(object) {
			continue
		}
		if err := place(object, wanted); err != nil {
			return fmt.Errorf("placing %s %s: %w", object.GetKind(), object.GetName(), err)
		}
	}
	return nil
}

// PullBy has the images of object's pods pulled by secrets, if it is a Deployment or a DaemonSet.
func PullBy(object *unstructured.Unstructured, secrets []corev1.LocalObjectReference) error {
	if len(secrets) == 0 || !HasPods(object) {
		return nil
	}
	var named []any
	for _, secret := range secrets {
		named = append(named, map[string]any{"name": secret.Name})
	}
	if err := unstructured.SetNestedSlice(object.Object, named, append(slices.Clone(podSpec), "imagePullSecrets")...); err != nil {
		return fmt.Errorf("setting the pull secrets of %s %s: %w", object.GetKind(), object.GetName(), err)
	}
	return nil
}

func place(object *unstructured.Unstructured, wanted map[string]any) error {
	spec, found, err := unstructured.NestedMap(object.Object, podSpec...)
	if err != nil || !found {
		return fmt.Errorf("it has no pod template: %w", err)
	}
	if selector, ok := wanted["nodeSelector"].(map[string]any); ok {
		merged, _ := spec["nodeSelector"].(map[string]any)
		if merged == nil {
			merged = map[string]any{}
		}
		maps.Copy(merged, selector)
		spec["nodeSelector"] = merged
	}
	if tolerations, ok := wanted["tolerations"].([]any); ok {
		own, _ := spec["tolerations"].([]any)
		spec["tolerations"] = append(own, runtime.DeepCopyJSONValue(tolerations).([]any)...)
	}
	if affinity, ok := wanted["affinity"].(map[string]any); ok {
		spec["affinity"] = runtime.DeepCopyJSON(affinity)
	}
	if err := unstructured.SetNestedMap(object.Object, spec, podSpec...); err != nil {
		return fmt.Errorf("setting its pod template: %w", err)
	}
	return nil
}
