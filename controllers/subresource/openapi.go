package subresource

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"

	virtv1 "kubevirt.io/api/core/v1"
)

// operation is one method of a path, as both versions of OpenAPI write it.
type operation struct {
	OperationID string         `json:"operationId"`
	Description string         `json:"description,omitempty"`
	Tags        []string       `json:"tags"`
	Parameters  []parameter    `json:"parameters,omitempty"`
	Responses   map[string]any `json:"responses"`
}

// parameter is one of the path. Type is for version 2, Schema for version 3.
type parameter struct {
	Name     string            `json:"name"`
	In       string            `json:"in"`
	Required bool              `json:"required"`
	Type     string            `json:"type,omitempty"`
	Schema   map[string]string `json:"schema,omitempty"`
}

func (s *Server) openAPIv2(w http.ResponseWriter, r *http.Request) error {
	paths := map[string]map[string]operation{}
	for _, gv := range virtv1.SubresourceGroupVersions {
		addPaths(paths, gv.Version, func(p *parameter) { p.Type = "string" })
	}
	write(w, r, http.StatusOK, map[string]any{"swagger": "2.0", "info": s.info(), "paths": paths})
	return nil
}

// openAPIv3 lists the documents of the versions, with what changes when they do.
func (s *Server) openAPIv3(w http.ResponseWriter, r *http.Request) error {
	paths := map[string]any{}
	for _, gv := range virtv1.SubresourceGroupVersions {
		content, err := json.Marshal(s.document(gv.Version))
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
	write(w, r, http.StatusOK, s.document(r.PathValue("version")))
	return nil
}

func (s *Server) document(version string) map[string]any {
	paths := map[string]map[string]operation{}
	addPaths(paths, version, func(p *parameter) { p.Schema = map[string]string{"type": "string"} })
	return map[string]any{"openapi": "3.0.0", "info": s.info(), "paths": paths}
}

func (s *Server) info() map[string]string {
	return map[string]string{"title": "Subresources of virtual machines", "version": s.options.Version}
}

// addPaths adds what is served of version. The type of a path's parameter is written by typed.
func addPaths(paths map[string]map[string]operation, version string, typed func(*parameter)) {
	prefix := strings.ReplaceAll(namespacedPath, "{version}", version)
	for _, r := range routes {
		if r.missing != "" {
			continue
		}
		path := prefix + r.path
		op := operation{
			OperationID: operationID(version, r.path), Tags: []string{virtv1.SubresourceGroupName + "_" + version},
			Responses: map[string]any{"default": map[string]string{"description": "what was asked for, or a Status that says why not"}},
		}
		for segment := range strings.SplitSeq(path, "/") {
			if name, ok := strings.CutPrefix(segment, "{"); ok {
				p := parameter{Name: strings.TrimSuffix(name, "}"), In: "path", Required: true}
				typed(&p)
				op.Parameters = append(op.Parameters, p)
			}
		}
		if paths[path] == nil {
			paths[path] = map[string]operation{}
		}
		paths[path][strings.ToLower(r.method)] = op
	}
}

// operationID is the path's words after the version, such as v1virtualmachines-start.
func operationID(version, path string) string {
	words := strings.FieldsFunc(path, func(c rune) bool { return c == '/' || c == '{' || c == '}' })
	return version + strings.Join(words, "-")
}
