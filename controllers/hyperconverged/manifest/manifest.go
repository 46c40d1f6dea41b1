// Package manifest makes the one file that installs the operator on any cluster.
package manifest

import (
	"bytes"
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/slipway-vm/slipway/controllers/hyperconverged"
	"github.com/slipway-vm/slipway/controllers/hyperconverged/render"
)

//go:embed install.yaml
var files embed.FS

// maxObject is what client-side kubectl apply allows of an object: it writes the whole
// object into an annotation.
const maxObject = 256 * 1024

// Write writes the install manifest for options to out. Options name the images; the
// kubelet's root is set only when it is not to be found out on the nodes.
func Write(out io.Writer, options hyperconverged.Options) error {
	if err := options.Validate(); err != nil {
		return err
	}
	objects, err := Objects(options)
	if err != nil {
		return err
	}
	for _, object := range objects {
		content, err := yaml.Marshal(object.Object)
		if err != nil {
			return fmt.Errorf("encoding %s %s: %w", object.GetKind(), object.GetName(), err)
		}
		if _, err := fmt.Fprintf(out, "---\n%s", content); err != nil {
			return fmt.Errorf("writing the manifest: %w", err)
		}
	}
	return nil
}

// Objects returns the objects of the install manifest in the order in which to apply them.
func Objects(options hyperconverged.Options) ([]*unstructured.Unstructured, error) {
	installed, err := render.Folder(files, ".", options.Values())
	if err != nil {
		return nil, fmt.Errorf("rendering the install manifest: %w", err)
	}
	definition, err := hyperconverged.Definition(options.Namespace)
	if err != nil {
		return nil, err
	}
	grants, err := grants(options)
	if err != nil {
		return nil, err
	}
	// The definition and the grants go before who needs them, after the namespace.
	objects := append([]*unstructured.Unstructured{installed[0], definition, grants}, installed[1:]...)
	var problems []error
	for _, object := range objects {
		encoded, err := json.Marshal(object.Object)
		if err != nil {
			return nil, fmt.Errorf("encoding %s: %w", object.GetName(), err)
		}
		if len(encoded) >= maxObject {
			problems = append(problems, fmt.Errorf("%s %s has %d bytes; kubectl apply takes less than %d",
				object.GetKind(), object.GetName(), len(encoded), maxObject))
		}
	}
	return objects, errors.Join(problems...)
}

// grants returns the ClusterRole with the rules of every role that the operator creates:
// the API server lets nobody give away what he has not.
func grants(options hyperconverged.Options) (*unstructured.Unstructured, error) {
	planned, err := hyperconverged.Planned(options)
	if err != nil {
		return nil, err
	}
	var rules []any
	seen := map[string]bool{}
	for _, object := range planned {
		if object.GetKind() != "Role" && object.GetKind() != "ClusterRole" {
			continue
		}
		own, _, err := unstructured.NestedSlice(object.Object, "rules")
		if err != nil {
			return nil, fmt.Errorf("reading the rules of %s: %w", object.GetName(), err)
		}
		for _, rule := range own {
			encoded, err := json.Marshal(rule)
			if err != nil {
				return nil, fmt.Errorf("encoding a rule of %s: %w", object.GetName(), err)
			}
			if key := string(bytes.TrimSpace(encoded)); !seen[key] {
				seen[key] = true
				rules = append(rules, rule)
			}
		}
	}
	role := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "rules": rules,
	}}
	role.SetName("virt-operator-grants")
	return role, nil
}
