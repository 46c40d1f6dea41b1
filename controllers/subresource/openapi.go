package subresource

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	runtimeschema "k8s.io/apimachinery/pkg/runtime/schema"
	virtv1 "kubevirt.io/api/core/v1"

	"github.com/slipway-vm/slipway/controllers/subresource/schema"
)

// Where documents have their definitions.
const (
	definitionsV2 = "#/definitions/"
	definitionsV3 = "#/components/schemas/"
)

// jsonType is the media type of what clients send and get, but for pictures and streams.
const jsonType = "application/json"

// dialect is how one version of OpenAPI says what the other says, too.
type dialect interface {
	// parameter is one of a path or a query, which where says.
	parameter(p parameter, where string) map[string]any
	// body adds what a client sends to an operation.
	body(operation map[string]any, sent schema.Schema, needed bool)
	// answer is one answer; got is nil for one without content.
	answer(what string, got schema.Schema, content string) map[string]any
}

type (
	second struct{}
	third  struct{}
)

func (second) parameter(p parameter, where string) map[string]any {
	return map[string]any{"name": p.name, "in": where, "description": p.what, "required": p.required, "type": p.kind, "uniqueItems": true}
}

func (third) parameter(p parameter, where string) map[string]any {
	return map[string]any{
		"name": p.name, "in": where, "description": p.what, "required": p.required, "schema": map[string]any{"type": p.kind, "uniqueItems": true},
	}
}

func (second) body(operation map[string]any, sent schema.Schema, needed bool) {
	parameters, _ := operation["parameters"].([]map[string]any)
	operation["consumes"] = []string{jsonType}
	operation["parameters"] = append(parameters, map[string]any{"name": "body", "in": "body", "required": needed, "schema": sent})
}

func (third) body(operation map[string]any, sent schema.Schema, needed bool) {
	operation["requestBody"] = map[string]any{"required": needed, "content": map[string]any{jsonType: map[string]any{"schema": sent}}}
}

func (second) answer(what string, got schema.Schema, _ string) map[string]any {
	answer := map[string]any{"description": what}
	if got != nil {
		answer["schema"] = got
	}
	return answer
}

func (third) answer(what string, got schema.Schema, content string) map[string]any {
	answer := map[string]any{"description": what}
	if got != nil {
		answer["content"] = map[string]any{content: map[string]any{"schema": got}}
	}
	return answer
}

// titleSubresources is the title of the documents of subresources.kubevirt.io.
const titleSubresources = "Subresources of virtual machines"

// groupVersions are those that documents describe.
func groupVersions() []runtimeschema.GroupVersion {
	all := slices.Clone(virtv1.SubresourceGroupVersions)
	for _, n := range neighbours() {
		all = append(all, n.versions...)
	}
	return all
}

func (s *Server) openAPIv2(w http.ResponseWriter, r *http.Request) error {
	paths, known := map[string]map[string]any{}, schema.New(definitionsV2)
	known.Beside = true
	for _, gv := range groupVersions() {
		addPaths(paths, gv, second{}, known)
	}
	titles := []string{titleSubresources}
	for _, n := range neighbours() {
		titles = append(titles, strings.ToLower(n.title))
	}
	write(w, r, http.StatusOK, map[string]any{
		"swagger": "2.0", "info": s.info(strings.Join(titles, "; ")), "paths": paths, "definitions": known.Named(),
	})
	return nil
}

// openAPIv3 lists the documents of the versions, with what changes when they do.
func (s *Server) openAPIv3(w http.ResponseWriter, r *http.Request) error {
	paths := map[string]any{}
	for _, gv := range groupVersions() {
		content, err := json.Marshal(s.document(gv))
		if err != nil {
			return fmt.Errorf("encoding the description of %s: %w", gv, err)
		}
		sum := sha256.Sum256(content)
		paths["apis/"+gv.String()] = map[string]string{
			"serverRelativeURL": "/openapi/v3/apis/" + gv.String() + "?hash=" + strings.ToUpper(hex.EncodeToString(sum[:])),
		}
	}
	write(w, r, http.StatusOK, map[string]any{"paths": paths})
	return nil
}

func (s *Server) openAPIv3Of(w http.ResponseWriter, r *http.Request) error {
	write(w, r, http.StatusOK, s.document(runtimeschema.GroupVersion{Group: virtv1.SubresourceGroupName, Version: r.PathValue("version")}))
	return nil
}

// document describes gv.
func (s *Server) document(gv runtimeschema.GroupVersion) map[string]any {
	paths, known := map[string]map[string]any{}, schema.New(definitionsV3)
	addPaths(paths, gv, third{}, known)
	title := titleSubresources
	if n := neighbourOf(gv.Group); n != nil {
		title = n.title
	}
	return map[string]any{"openapi": "3.0.0", "info": s.info(title), "paths": paths, "components": map[string]any{"schemas": known.Named()}}
}

func (s *Server) info(title string) map[string]string {
	return map[string]string{"title": title, "version": s.options.Version}
}

// addPaths adds what is served of gv, in the words of in.
func addPaths(paths map[string]map[string]any, gv runtimeschema.GroupVersion, in dialect, known *schema.Definitions) {
	add := func(r route, path, id string, about description) {
		path = strings.ReplaceAll(path, "{version}", gv.Version)
		if paths[path] == nil {
			paths[path] = map[string]any{}
		}
		operation := operationOf(path, about, in, known)
		operation["operationId"], operation["tags"] = gv.Version+id, []string{gv.Group + "_" + gv.Version}
		paths[path][strings.ToLower(r.method)] = operation
	}
	if n := neighbourOf(gv.Group); n != nil {
		for _, r := range n.routes {
			add(r, n.namespacedPath()+r.path, operationID(r.path), n.descriptions[r.path])
		}
		return
	}
	for _, r := range routes {
		if r.missing == "" {
			add(r, namespacedPath+r.path, operationID(r.path), descriptions[r.path])
		}
	}
	for _, r := range versionPages {
		if end := strings.TrimPrefix(r.path, versionPath); r.missing == "" {
			add(r, r.path, operationID(end), pageDescriptions[end])
		}
	}
}

// operationOf is one method of a path.
func operationOf(path string, about description, in dialect, known *schema.Definitions) map[string]any {
	operation := map[string]any{"description": about.does, "produces": []string{jsonType}}
	content := jsonType
	if about.content != "" {
		content = about.content
		operation["produces"] = []string{about.content, jsonType}
	}
	if _, isThird := in.(third); isThird {
		delete(operation, "produces") // each answer says so
	}
	parameters := []map[string]any{}
	for segment := range strings.SplitSeq(path, "/") {
		if name, ok := strings.CutPrefix(segment, "{"); ok {
			parameters = append(parameters, in.parameter(ofPath[strings.TrimSuffix(name, "}")], "path"))
		}
	}
	for _, p := range about.query {
		parameters = append(parameters, in.parameter(p, "query"))
	}
	if len(parameters) > 0 {
		operation["parameters"] = parameters
	}
	if about.kind != (metav1.GroupVersionKind{}) {
		operation["x-kubernetes-group-version-kind"], operation["x-kubernetes-action"] = about.kind, "post"
		known.Kind(about.body, about.kind)
	}
	if about.body != nil {
		in.body(operation, known.Of(about.body), about.needed)
	}
	answers := map[string]any{"default": in.answer("a Status that says why not", known.Of(metav1.Status{}), jsonType)}
	for _, code := range slices.Sorted(maps.Keys(about.answers)) {
		var got schema.Schema
		if value := about.answers[code]; value != nil {
			got = known.Of(value)
		}
		answers[strconv.Itoa(code)] = in.answer(http.StatusText(code), got, content)
	}
	operation["responses"] = answers
	return operation
}

// operationID is the path's words, such as virtualmachines-name-start.
func operationID(path string) string {
	words := strings.FieldsFunc(path, func(c rune) bool { return c == '/' || c == '{' || c == '}' })
	return strings.Join(words, "-")
}
