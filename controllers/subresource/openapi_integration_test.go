//go:build integration

package subresource_test

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/onsi/gomega"

	"github.com/slipway-vm/slipway/controllers/subresource"
)

// verb is an operation of a document, in the words of either version of OpenAPI.
type verb struct {
	Description string
	Parameters  []struct {
		Name, In string
		Required bool
		Type     string
		Schema   map[string]any
	}
	RequestBody *struct {
		Content map[string]struct{ Schema map[string]any }
	}
	Responses map[string]struct {
		Description string
		Schema      map[string]any
		Content     map[string]struct{ Schema map[string]any }
	}
}

// document is a document of either version.
type document struct {
	Paths       map[string]map[string]json.RawMessage // others' paths have more than verbs
	Definitions map[string]map[string]any
	Components  struct{ Schemas map[string]map[string]any }
}

// verb is one operation of a path; empty where there is none.
func (d document) verb(t *testing.T, path, method string) verb {
	t.Helper()
	var read verb
	if content := d.Paths[path][method]; content != nil {
		must(t, json.Unmarshal(content, &read))
	}
	return read
}

// body is the schema of what a client sends; nil for nothing.
func (v verb) body() map[string]any {
	if v.RequestBody != nil {
		return v.RequestBody.Content["application/json"].Schema
	}
	for _, p := range v.Parameters {
		if p.In == "body" {
			return p.Schema
		}
	}
	return nil
}

// describesVerbs reads the documents that the API server gives out, and compares them with the routes.
func describesVerbs(t *testing.T, c *cluster) {
	t.Helper()
	for _, version := range []string{"v1", "v1alpha3"} {
		for _, page := range []string{"/openapi/v2", "/openapi/v3" + strings.TrimSuffix(group, "v1") + version} {
			var read document
			served := subresource.Served(version)
			gomega.NewWithT(t).Eventually(func() int {
				read = document{}
				code, said := c.ask(t, c.Config, http.MethodGet, page, "")
				if code != http.StatusOK {
					return 0
				}
				must(t, json.Unmarshal([]byte(said), &read))
				known := 0
				for path := range served {
					if read.Paths[path] != nil {
						known++
					}
				}
				return known
			}, bound, "500ms").Should(gomega.Equal(len(served)), "paths of "+version+" in "+page)
			for path, methods := range served {
				for _, method := range methods {
					checkVerb(t, read, read.verb(t, path, method), page+": "+method+" "+path)
				}
			}
			checkBodies(t, read, version)
		}
	}
}

// checkVerb wants that an operation is whole: its words, the parameters of its path, and where its schemas are.
func checkVerb(t *testing.T, read document, v verb, where string) {
	t.Helper()
	if v.Description == "" || len(v.Responses) < 2 || v.Responses["default"].Description == "" {
		t.Errorf("%s: got %+v, want a description and answers", where, v)
	}
	schemas := []map[string]any{v.body()}
	for _, answer := range v.Responses {
		schemas = append(schemas, answer.Schema)
		for _, content := range answer.Content {
			schemas = append(schemas, content.Schema)
		}
	}
	for _, schema := range schemas {
		if to, refers := schema["$ref"].(string); refers && read.definition(to) == nil {
			t.Errorf("%s refers to %s, which is not there", where, to)
		}
	}
	named := map[string]bool{}
	for _, p := range v.Parameters {
		named[p.Name] = p.In == "path" && p.Required && (p.Type != "" || p.Schema["type"] != nil)
	}
	_, path, _ := strings.Cut(where, " /")
	for segment := range strings.SplitSeq(path, "/") {
		if name, is := strings.CutPrefix(segment, "{"); is && !named[strings.TrimSuffix(name, "}")] {
			t.Errorf("%s: the parameter %s is not described: %+v", where, segment, v.Parameters)
		}
	}
}

// definition is what a reference names.
func (d document) definition(reference string) map[string]any {
	name := reference[strings.LastIndex(reference, "/")+1:]
	if found := d.Definitions[name]; found != nil {
		return found
	}
	return d.Components.Schemas[name]
}

// checkBodies looks for fields of what clients send and get.
func checkBodies(t *testing.T, read document, version string) {
	t.Helper()
	at := strings.TrimSuffix(group, "v1") + version + "/namespaces/{namespace}/"
	for path, field := range map[string]string{
		"virtualmachines/{name}/start": "paused", "virtualmachines/{name}/stop": "gracePeriod", "virtualmachines/{name}/restart": "gracePeriodSeconds",
		"virtualmachines/{name}/rename": "newName", "virtualmachines/{name}/addvolume": "volumeSource", "virtualmachines/{name}/memorydump": "claimName",
		"virtualmachineinstances/{name}/pause": "dryRun", "virtualmachineinstances/{name}/freeze": "unfreezeTimeout", "expand-vm-spec": "spec",
	} {
		to, _ := read.verb(t, at+path, "put").body()["$ref"].(string)
		properties, _ := read.definition(to)["properties"].(map[string]any)
		if properties[field] == nil {
			t.Errorf("%s of %s: the body %q has no field %s: %v", path, version, to, field, properties)
		}
	}
	vsock := read.verb(t, at+"virtualmachineinstances/{name}/vsock", "get")
	for _, p := range vsock.Parameters {
		if p.Name == "port" && p.In == "query" && p.Required {
			return
		}
	}
	t.Errorf("vsock of %s does not ask for a port: %+v", version, vsock.Parameters)
}
