package adm

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	virtv1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// defaultLevel is that of components of which nobody says anything.
const defaultLevel = 2

// installation is the KubeVirt object, with what it and HyperConverged say of levels.
type installation struct {
	client   client.Client
	kubevirt *virtv1.KubeVirt
	// levels are by field: first those of the KubeVirt object, then HyperConverged's.
	levels map[string]int64
}

// findInstallation reads the cluster's one KubeVirt object.
func findInstallation(ctx context.Context, c client.Client) (*installation, error) {
	list := &virtv1.KubeVirtList{}
	if err := c.List(ctx, list); err != nil {
		return nil, fmt.Errorf("could not list KubeVirt CRs across all namespaces: %w", err)
	}
	switch len(list.Items) {
	case 0:
		return nil, errors.New("could not detect a KubeVirt installation")
	case 1:
	default:
		return nil, errors.New("invalid kubevirt installation, more than one KubeVirt resource found")
	}
	found := &installation{client: c, kubevirt: &list.Items[0]}
	found.levels = deployed(ctx, c, found.kubevirt.Namespace)
	developer := found.kubevirt.Spec.Configuration.DeveloperConfiguration
	if developer == nil || developer.LogVerbosity == nil {
		return found, nil
	}
	said := developer.LogVerbosity
	for field, level := range map[string]uint{
		"virtAPI": said.VirtAPI, "virtController": said.VirtController, "virtHandler": said.VirtHandler,
		"virtLauncher": said.VirtLauncher, "virtOperator": said.VirtOperator,
	} {
		if level > 0 {
			found.levels[field] = int64(min(level, maxLevel)) //nolint:gosec // bounded
		}
	}
	return found, nil
}

// deployed is what the HyperConverged object of namespace has components log while the KubeVirt object
// says nothing. Not every installation has one, nor everybody the right to read it.
func deployed(ctx context.Context, c client.Client, namespace string) map[string]int64 {
	levels := map[string]int64{}
	list := &unstructured.UnstructuredList{}
	list.SetAPIVersion("hco.kubevirt.io/v1beta1")
	list.SetKind("HyperConvergedList")
	if err := c.List(ctx, list, client.InNamespace(namespace)); err != nil || len(list.Items) == 0 {
		return levels
	}
	said, _, err := unstructured.NestedMap(list.Items[0].Object, "spec", "logVerbosityConfig", "kubevirt")
	if err != nil {
		return levels
	}
	for field, level := range said {
		if number, ok := level.(int64); ok {
			levels[field] = number
		}
	}
	return levels
}

// level is how much a component logs.
func (i *installation) level(c component) int64 {
	if level, said := i.levels[c.field]; said {
		return level
	}
	return defaultLevel
}

// patch sets levels by field; nil takes one away.
func (i *installation) patch(ctx context.Context, levels map[string]any) error {
	data, err := json.Marshal(map[string]any{"spec": map[string]any{"configuration": map[string]any{
		"developerConfiguration": map[string]any{"logVerbosity": levels},
	}}})
	if err != nil {
		return fmt.Errorf("encoding levels: %w", err)
	}
	if err := i.client.Patch(ctx, i.kubevirt, client.RawPatch(types.MergePatchType, data)); err != nil {
		return fmt.Errorf("setting logVerbosity of KubeVirt %s/%s: %w", i.kubevirt.Namespace, i.kubevirt.Name, err)
	}
	return nil
}
