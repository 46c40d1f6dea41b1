package fuzz

import (
	"fmt"
	"io/fs"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	structuralschema "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/defaulting"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/listtype"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/yaml"

	"github.com/slipway-vm/slipway/controllers/hyperconverged/components"
)

// definition is what an API server knows of a kind: its schema, and the checks made of it.
type definition struct {
	schema     *apiextensionsv1.JSONSchemaProps
	structural *structuralschema.Structural
	validator  validation.SchemaValidator
}

// readDefinition reads the version of a CustomResourceDefinition that is shipped in file.
func readDefinition(file, version string) (*definition, error) {
	files, err := components.Definitions()
	if err != nil {
		return nil, err
	}
	data, err := fs.ReadFile(files, file)
	if err != nil {
		return nil, fmt.Errorf("reading the definition: %w", err)
	}
	crd := &apiextensionsv1.CustomResourceDefinition{}
	if err := yaml.Unmarshal(data, crd); err != nil {
		return nil, fmt.Errorf("reading %s: %w", file, err)
	}
	for i := range crd.Spec.Versions {
		if crd.Spec.Versions[i].Name == version {
			return newDefinition(crd.Spec.Versions[i].Schema.OpenAPIV3Schema)
		}
	}
	return nil, fmt.Errorf("%s has no version %s", file, version)
}

func newDefinition(schema *apiextensionsv1.JSONSchemaProps) (*definition, error) {
	internal := &apiextensions.JSONSchemaProps{}
	if err := apiextensionsv1.Convert_v1_JSONSchemaProps_To_apiextensions_JSONSchemaProps(schema, internal, nil); err != nil {
		return nil, fmt.Errorf("converting the schema: %w", err)
	}
	structural, err := structuralschema.NewStructural(internal)
	if err != nil {
		return nil, fmt.Errorf("reading the schema: %w", err)
	}
	validator, _, err := validation.NewSchemaValidator(internal)
	if err != nil {
		return nil, fmt.Errorf("reading the schema: %w", err)
	}
	return &definition{schema: schema, structural: structural, validator: validator}, nil
}

// complete puts the schema's defaults in, as an API server does before it asks webhooks.
func (d *definition) complete(object map[string]any) { defaulting.Default(object, d.structural) }

// validate says what an API server finds wrong.
func (d *definition) validate(object map[string]any) field.ErrorList {
	errs := validation.ValidateCustomResource(nil, object, d.validator)
	return append(errs, listtype.ValidateListSetsAndMaps(nil, d.structural, object)...)
}
