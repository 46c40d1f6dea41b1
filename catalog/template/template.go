// Package template is the engine behind every template that Slipway takes: the
// parameters of OpenShift's Template (template.openshift.io/v1), read strictly. A
// VirtualMachineTemplate (template.kubevirt.io) becomes one of those first.
//
// ${NAME} anywhere in a string, also in the key of a map, becomes the parameter's
// value; ${{NAME}} as a whole string becomes the value decoded as JSON, so a number
// stays a number, and what is no JSON a string. $${NAME} becomes ${NAME}, for the shell of a guest. Values are put in
// once and never scanned again. A reference to a parameter that the template does not
// declare is an error, and so is a value for one.
package template

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/hashicorp/go-multierror"
	templatev1 "github.com/openshift/api/template/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/json"
)

// Processed is what a template turns into.
type Processed struct {
	// Objects are the template's objects with every parameter in its place.
	Objects []*unstructured.Unstructured
	// Message is the template's message to its user, parameters filled in.
	Message string
	// Unused names the declared parameters that nothing refers to.
	Unused []string
}

// MissingError says which required parameters have no value.
type MissingError struct{ Names []string }

// Error uses the words that the field's clients look for.
func (e *MissingError) Error() string {
	return "required params are missing values: " + strings.Join(e.Names, ", ")
}

// UndeclaredError says that values were given for parameters that there are not.
type UndeclaredError struct {
	// Names are those that were given, Declared those that the template has.
	Names, Declared []string
}

// Error names them.
func (e *UndeclaredError) Error() string {
	return fmt.Sprintf("it has no parameter %s; it has %s", strings.Join(e.Names, ", "), strings.Join(e.Declared, ", "))
}

// Process fills the parameters of tmpl with values, and those without a value with their
// default or with what their expression generates. tmpl itself is not changed.
func Process(tmpl *templatev1.Template, values map[string]string) (*Processed, error) {
	resolved, err := resolve(tmpl.Parameters, values)
	if err != nil {
		return nil, fmt.Errorf("template %s: %w", tmpl.Name, err)
	}
	s := &substitution{values: resolved, used: map[string]bool{}}
	out := &Processed{}
	labels := s.labels(tmpl.ObjectLabels)
	for i, raw := range tmpl.Objects {
		object, err := s.object(raw)
		if err != nil {
			s.fail(fmt.Errorf("objects[%d]: %w", i, err))
			continue
		}
		mergeLabels(object, labels)
		out.Objects = append(out.Objects, object)
	}
	out.Message = s.text("message", tmpl.Message)
	if s.errs != nil {
		return nil, fmt.Errorf("template %s: %w", tmpl.Name, s.errs)
	}
	for _, p := range tmpl.Parameters {
		if !s.used[p.Name] {
			out.Unused = append(out.Unused, p.Name)
		}
	}
	return out, nil
}

// resolve gives every declared parameter its value.
func resolve(parameters []templatev1.Parameter, given map[string]string) (map[string]string, error) {
	var errs *multierror.Error
	resolved := make(map[string]string, len(parameters))
	missing := &MissingError{}
	for i, p := range parameters {
		value, ok := given[p.Name]
		if !ok || value == "" {
			value = p.Value
		}
		if value == "" && p.Generate != "" {
			var err error
			if value, err = generate(p); err != nil {
				errs = multierror.Append(errs, fmt.Errorf("parameters[%d] %s: %w", i, p.Name, err))
			}
		}
		if p.Name == "" {
			errs = multierror.Append(errs, fmt.Errorf("parameters[%d]: it has no name", i))
		}
		if value == "" && p.Required {
			missing.Names = append(missing.Names, p.Name)
		}
		if _, twice := resolved[p.Name]; twice {
			errs = multierror.Append(errs, fmt.Errorf("parameters[%d]: %s is declared twice", i, p.Name))
		}
		resolved[p.Name] = value
	}
	if len(missing.Names) > 0 {
		errs = multierror.Append(errs, missing)
	}
	undeclared := &UndeclaredError{Declared: sortedKeys(resolved)}
	for _, name := range sortedKeys(given) {
		if _, declared := resolved[name]; !declared {
			undeclared.Names = append(undeclared.Names, name)
		}
	}
	if len(undeclared.Names) > 0 {
		errs = multierror.Append(errs, undeclared)
	}
	return resolved, errs.ErrorOrNil() //nolint:wrapcheck // these are our own errors, and Process says the template
}

func generate(p templatev1.Parameter) (string, error) {
	if p.Generate != "expression" {
		return "", fmt.Errorf("generate: %q is not known; write expression", p.Generate)
	}
	return Generate(p.From)
}

// mergeLabels puts the template's objectLabels on an object, in place of its own of the same name.
func mergeLabels(object *unstructured.Unstructured, labels map[string]string) {
	if len(labels) == 0 {
		return
	}
	merged := object.GetLabels()
	if merged == nil {
		merged = map[string]string{}
	}
	maps.Copy(merged, labels)
	object.SetLabels(merged)
}

// decode returns the object of a template as a tree.
func decode(raw runtime.RawExtension) (map[string]any, error) {
	data := raw.Raw
	if data == nil && raw.Object != nil {
		var err error
		if data, err = json.Marshal(raw.Object); err != nil {
			return nil, fmt.Errorf("encoding: %w", err)
		}
	}
	var tree map[string]any
	if err := json.Unmarshal(data, &tree); err != nil {
		return nil, fmt.Errorf("decoding: %w", err)
	}
	if tree["kind"] == nil || tree["apiVersion"] == nil {
		return nil, errors.New("apiVersion and kind are required")
	}
	return tree, nil
}

func sortedKeys[V any](m map[string]V) []string {
	keys := make([]string, 0, len(m))
	for key := range m {
		keys = append(keys, key)
	}
	slices.Sort(keys)
	return keys
}
