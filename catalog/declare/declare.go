// Package declare says which common instance types and preferences there are: instance
// types as series of sizes, preferences as families of guests. hack/generate writes the
// YAML that package catalog embeds, and the page of the docs, from it. Names, sizes,
// labels and annotations are those of the field's own set, for dashboards and other
// clients look for them.
package declare

import (
	"bytes"
	"encoding/json"
	"fmt"

	"sigs.k8s.io/yaml"
)

// Version is that of the field's set that this one has the names and sizes of.
const Version = "v1.7.0"

// Labels and annotations that clients look for.
const (
	domain           = "instancetype.kubevirt.io/"
	labelVendor      = domain + "vendor"
	labelSetVersion  = domain + "common-instancetypes-version"
	vendor           = "kubevirt.io"
	apiVersion       = domain + "v1beta1"
	kindInstancetype = "VirtualMachineClusterInstancetype"
	kindPreference   = "VirtualMachineClusterPreference"
)

// object is one declared object as JSON has it.
type object map[string]any

// newObject returns an object whose spec is that of typed, one of the API's Go types.
func newObject(kind, name string, labels, annotations map[string]string, typed any) (object, error) {
	data, err := json.Marshal(typed)
	if err != nil {
		return nil, fmt.Errorf("encoding %s %s: %w", kind, name, err)
	}
	spec := map[string]any{}
	if err := json.Unmarshal(data, &spec); err != nil {
		return nil, fmt.Errorf("decoding %s %s: %w", kind, name, err)
	}
	return object{
		"apiVersion": apiVersion, "kind": kind, "spec": spec,
		"metadata": map[string]any{"name": name, "labels": labels, "annotations": annotations},
	}, nil
}

// file is the YAML of objects, in their order.
func file(objects []object) ([]byte, error) {
	var out bytes.Buffer
	out.WriteString("# Generated from catalog/declare by `make generate`. DO NOT EDIT.\n")
	for _, o := range objects {
		data, err := yaml.Marshal(o)
		if err != nil {
			return nil, fmt.Errorf("encoding YAML: %w", err)
		}
		out.WriteString("---\n")
		out.Write(data)
	}
	return out.Bytes(), nil
}
