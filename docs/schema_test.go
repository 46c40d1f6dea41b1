package docs_test

import (
	"fmt"
	"io/fs"
	"slices"
	"sync"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/yaml"

	"github.com/slipway-vm/slipway/controllers/hyperconverged/components"
)

// schemas are the schemas of our definitions, by kind and version.
var schemas = sync.OnceValues(func() (map[schema.GroupVersionKind]*apiextensionsv1.JSONSchemaProps, error) {
	files, err := components.Definitions()
	if err != nil {
		return nil, err
	}
	paths, err := fs.Glob(files, "*.yaml")
	if err != nil {
		return nil, err
	}
	all := map[schema.GroupVersionKind]*apiextensionsv1.JSONSchemaProps{}
	for _, path := range paths {
		data, err := fs.ReadFile(files, path)
		if err != nil {
			return nil, err
		}
		var definition apiextensionsv1.CustomResourceDefinition
		if err := yaml.UnmarshalStrict(data, &definition); err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		spec := definition.Spec
		for _, version := range spec.Versions {
			all[schema.GroupVersionKind{Group: spec.Group, Version: version.Name, Kind: spec.Names.Kind}] = version.Schema.OpenAPIV3Schema
		}
	}
	return all, nil
})

// lacking returns the fields that the definition of kind requires and raw has not. The Go
// types do not know that; the API server refuses such an object.
func lacking(kind schema.GroupVersionKind, raw map[string]any) (field.ErrorList, error) {
	known, err := schemas()
	if err != nil {
		return nil, err
	}
	return required(known[kind], nil, raw), nil
}

func required(s *apiextensionsv1.JSONSchemaProps, path *field.Path, value any) field.ErrorList {
	var errs field.ErrorList
	switch value := value.(type) {
	case map[string]any:
		if s == nil {
			return nil
		}
		for _, name := range s.Required {
			if _, has := value[name]; !has {
				errs = append(errs, field.Required(path.Child(name), "the definition requires it"))
			}
		}
		for name, item := range value {
			if property, known := s.Properties[name]; known {
				errs = append(errs, required(&property, path.Child(name), item)...)
			} else if s.AdditionalProperties != nil {
				errs = append(errs, required(s.AdditionalProperties.Schema, path.Key(name), item)...)
			}
		}
	case []any:
		if s == nil || s.Items == nil {
			return nil
		}
		for i, item := range value {
			errs = append(errs, required(s.Items.Schema, path.Index(i), item)...)
		}
	default:
		if s != nil && len(s.Enum) > 0 && !slices.ContainsFunc(s.Enum, func(e apiextensionsv1.JSON) bool { return string(e.Raw) == fmt.Sprintf("%q", value) }) {
			errs = append(errs, field.Invalid(path, value, "it is not in the definition's list"))
		}
	}
	return errs
}
