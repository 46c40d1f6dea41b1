package crd

import (
	"slices"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/controller-tools/pkg/crd"
)

// describeUpTo bounds the descriptions of fields, in characters: enough for kubectl
// explain, and the largest definition stays far below what etcd stores.
const describeUpTo = 240

// refine adds to the schema of an object what its Go type does not say: what must not
// be pruned, and which lists are maps.
func refine(root *apiextensionsv1.JSONSchemaProps) {
	crd.TruncateDescription(root, describeUpTo)
	for name, property := range root.Properties {
		if name == "metadata" {
			root.Properties[name] = apiextensionsv1.JSONSchemaProps{Type: "object"}
			continue
		}
		walk(name, &property)
		root.Properties[name] = property
	}
	// An object of these kinds need not carry a status, whatever its tag says.
	root.Required = slices.DeleteFunc(root.Required, func(name string) bool { return name == "status" })
}

// toldElsewhere are fields of types that have a page of kubectl explain of their own: of a pod, or
// of a DataImportCron.
var toldElsewhere = map[string]bool{
	"affinity": true, "tolerations": true, "topologySpreadConstraints": true, "dataImportCronTemplates": true,
}

func walk(name string, schema *apiextensionsv1.JSONSchemaProps) {
	if name == "metadata" && schema.Type == "object" && len(schema.Properties) == 0 && schema.AdditionalProperties == nil {
		keepUnknown(schema)
		return
	}
	if toldElsewhere[name] {
		dropDescriptionsBelow(schema)
	}
	if name == "dataImportCronTemplates" {
		allowNoSchedule(schema)
	}
	if name == "conditions" && isConditionList(schema) {
		makeMapByType(schema)
	}
	for child, property := range schema.Properties {
		walk(child, &property)
		schema.Properties[child] = property
	}
	if schema.Items != nil && schema.Items.Schema != nil {
		walk("", schema.Items.Schema)
	}
	if schema.AdditionalProperties != nil && schema.AdditionalProperties.Schema != nil {
		walk("", schema.AdditionalProperties.Schema)
	}
}

// keepUnknown lets the metadata of an embedded template through whole: its labels and
// annotations would be pruned otherwise. Clients send null for an empty one.
func keepUnknown(schema *apiextensionsv1.JSONSchemaProps) {
	keep := true
	schema.XPreserveUnknownFields = &keep
	schema.Nullable = true
}

// dropDescriptionsBelow keeps the description of a type that is told elsewhere and drops
// those of its fields, which kubectl explain tells better there.
func dropDescriptionsBelow(schema *apiextensionsv1.JSONSchemaProps) {
	own := schema.Description
	crd.TruncateDescription(schema, 0)
	schema.Description = own
}

// allowNoSchedule lets a template of a DataImportCron say nothing of when to look: one that changes a
// common boot image gets the time of that.
func allowNoSchedule(templates *apiextensionsv1.JSONSchemaProps) {
	if templates.Items == nil || templates.Items.Schema == nil {
		return
	}
	spec := templates.Items.Schema.Properties["spec"]
	spec.Required = slices.DeleteFunc(spec.Required, func(name string) bool { return name == "schedule" })
	templates.Items.Schema.Properties["spec"] = spec
}

func isConditionList(schema *apiextensionsv1.JSONSchemaProps) bool {
	if schema.Type != "array" || schema.Items == nil || schema.Items.Schema == nil {
		return false
	}
	_, typed := schema.Items.Schema.Properties["type"]
	_, stated := schema.Items.Schema.Properties["status"]
	return typed && stated
}

// makeMapByType lets several writers own a condition type each under server-side apply.
func makeMapByType(schema *apiextensionsv1.JSONSchemaProps) {
	kind := "map"
	schema.XListType, schema.XListMapKeys = &kind, []string{"type"}
	if !slices.Contains(schema.Items.Schema.Required, "type") {
		schema.Items.Schema.Required = append(schema.Items.Schema.Required, "type")
		slices.Sort(schema.Items.Schema.Required)
	}
}
