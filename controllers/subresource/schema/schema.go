// Package schema describes Go types of the API in OpenAPI's words: what JSON has of them, with what their own
// documentation says of each field. It is pure.
package schema

import (
	"encoding/json"
	"reflect"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Names of definitions begin with this: others in the API server's document describe the same types as they see them.
const prefix = "io.kubevirt.subresources."

// Schema is a schema as both versions of OpenAPI write it.
type Schema map[string]any

// Definitions are schemas by name, to which others refer.
type Definitions struct {
	// Beside has descriptions stand beside references, as in Kubernetes' own documents of version 2: whose clients read
	// no lists.
	Beside bool
	// root is where the document has them, such as #/definitions/.
	root  string
	named map[string]Schema
}

// New returns definitions of a document that has them at root, such as #/definitions/.
func New(root string) *Definitions { return &Definitions{root: root, named: map[string]Schema{}} }

// kindKey is by what clients find the definition of a kind.
const kindKey = "x-kubernetes-group-version-kind"

// Kind is Of value, an object of a kind: clients find its definition by that, and may send it without metadata, and
// without a status, which is for the server to write.
func (d *Definitions) Kind(value any, kind metav1.GroupVersionKind) Schema {
	reference := d.Of(value)
	definition := d.named[nameOf(reflect.TypeOf(value))]
	definition[kindKey] = []metav1.GroupVersionKind{kind}
	if required, some := definition["required"].([]string); some {
		definition["required"] = slices.DeleteFunc(required, func(name string) bool { return name == "metadata" || name == "status" })
	}
	return reference
}

// Named are all schemas that those of Of refer to, by name.
func (d *Definitions) Named() map[string]Schema { return d.named }

// Of is the schema of value's type. A struct becomes a definition, and a reference to it is returned.
func (d *Definitions) Of(value any) Schema { return d.of(reflect.TypeOf(value)) }

// Types of the API tell by these what JSON makes of them, and what their fields mean.
type (
	typed      interface{ OpenAPISchemaType() []string }
	formatted  interface{ OpenAPISchemaFormat() string }
	documented interface{ SwaggerDoc() map[string]string }
)

var marshaler = reflect.TypeFor[json.Marshaler]()

func (d *Definitions) of(t reflect.Type) Schema {
	if t.Kind() == reflect.Pointer {
		return d.of(t.Elem())
	}
	if own := declared(t); own != nil {
		return own
	}
	switch t.Kind() {
	case reflect.Struct:
		return d.reference(t)
	case reflect.Map:
		return Schema{"type": "object", "additionalProperties": d.of(t.Elem())}
	case reflect.Slice, reflect.Array:
		if t.Elem().Kind() == reflect.Uint8 {
			return Schema{"type": "string", "format": "byte"}
		}
		return Schema{"type": "array", "items": d.of(t.Elem())}
	}
	return plain(t.Kind())
}

// declared is what a type says of itself; nil when its fields say it.
func declared(t reflect.Type) Schema {
	value := reflect.New(t).Interface()
	if own, says := value.(typed); says {
		schema := Schema{"type": own.OpenAPISchemaType()[0]}
		if format, says := value.(formatted); says && format.OpenAPISchemaFormat() != "" {
			schema["format"] = format.OpenAPISchemaFormat()
		}
		return schema
	}
	if t.Implements(marshaler) || reflect.PointerTo(t).Implements(marshaler) {
		return Schema{} // whatever it likes
	}
	return nil
}

// plain is the schema of a type without parts.
func plain(kind reflect.Kind) Schema {
	switch kind {
	case reflect.String:
		return Schema{"type": "string"}
	case reflect.Bool:
		return Schema{"type": "boolean"}
	case reflect.Int64, reflect.Uint64, reflect.Int, reflect.Uint:
		return Schema{"type": "integer", "format": "int64"}
	case reflect.Int32, reflect.Uint32, reflect.Int16, reflect.Uint16, reflect.Int8, reflect.Uint8:
		return Schema{"type": "integer", "format": "int32"}
	case reflect.Float32, reflect.Float64:
		return Schema{"type": "number", "format": "double"}
	}
	return Schema{}
}

// reference is a reference to a struct's definition, which is made at the first.
func (d *Definitions) reference(t reflect.Type) Schema {
	name := nameOf(t)
	if _, there := d.named[name]; !there {
		schema := Schema{"type": "object"}
		d.named[name] = schema // before its fields are looked at, which may be of its own type
		words := wordsOf(t)
		if about := words[""]; about != "" && !ofPart(t, about) {
			schema["description"] = about
		}
		properties := map[string]Schema{}
		required := d.fields(t, words, properties)
		if len(properties) > 0 {
			schema["properties"] = properties
		}
		if len(required) > 0 {
			schema["required"] = required
		}
	}
	return Schema{"$ref": d.root + name}
}

// fields adds the fields of a struct to properties, with those of structs that it embeds, and returns which JSON always has.
func (d *Definitions) fields(t reflect.Type, words map[string]string, properties map[string]Schema) []string {
	var required []string
	for f := range t.Fields() {
		name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		inner := f.Type
		if inner.Kind() == reflect.Pointer {
			inner = inner.Elem()
		}
		switch {
		case name == "-" || !f.IsExported():
		case name == "" && (f.Anonymous || strings.Contains(options, "inline")):
			if inner.Kind() == reflect.Struct {
				required = append(required, d.fields(inner, wordsOf(inner), properties)...)
			}
		case name != "":
			properties[name] = d.explained(d.of(f.Type), words[name])
			if !strings.Contains(options, "omit") && f.Type.Kind() != reflect.Pointer {
				required = append(required, name)
			}
		}
	}
	return required
}

// explained is schema with a description. Beside a reference nothing may stand, so that goes into a list of one, but
// where clients read none.
func (d *Definitions) explained(schema Schema, words string) Schema {
	if words == "" {
		return schema
	}
	if _, refers := schema["$ref"]; refers && !d.Beside {
		return Schema{"description": words, "allOf": []Schema{schema}}
	}
	schema["description"] = words
	return schema
}

// wordsOf is what t says of itself, by "", and of its fields by their names. What is for generators of code is left out.
func wordsOf(t reflect.Type) map[string]string {
	own, says := reflect.TypeAssert[documented](reflect.New(t))
	if !says {
		return nil
	}
	words := map[string]string{}
	for name, text := range own.SwaggerDoc() {
		lines := slices.DeleteFunc(strings.Split(text, "\n"), func(line string) bool { return strings.HasPrefix(line, "+") })
		words[name] = strings.Join(lines, "\n")
	}
	return words
}

// ofPart says whether about is said of a struct that t embeds: t has that one's method when it has none of its own.
func ofPart(t reflect.Type, about string) bool {
	for f := range t.Fields() {
		if f.Anonymous && wordsOf(f.Type)[""] == about {
			return true
		}
	}
	return false
}

// nameOf is a definition's name: the package's path with dots, and the type.
func nameOf(t reflect.Type) string {
	return prefix + strings.ReplaceAll(t.PkgPath(), "/", ".") + "." + t.Name()
}
