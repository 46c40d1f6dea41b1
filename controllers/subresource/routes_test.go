package subresource

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"

	"github.com/slipway-vm/slipway/tests/fixture"
)

// unconnected is a server that has no API server to ask.
func unconnected() *Server {
	broken := func(context.Context) error { return errors.New("connection refused") }
	return newServer(nil, nil, &frontProxy{log: klog.Background()}, broken, Options{Version: "v0.0.0-test"})
}

func get(t *testing.T, method, path string) *httptest.ResponseRecorder {
	t.Helper()
	return ask(t, unconnected(), method, path)
}

func ask(t *testing.T, server *Server, method, path string) *httptest.ResponseRecorder {
	t.Helper()
	recorder := httptest.NewRecorder()
	server.ServeHTTP(recorder, httptest.NewRequest(method, path, nil))
	return recorder
}

func TestPagesSayWhatThereIs(t *testing.T) {
	uploadVersionPath, templateVersionPath := uploads.groupPath()+"/v1beta1", templates.groupPath()+"/v1alpha1"
	for path, file := range map[string]string{
		"/":                                 "root.json",
		"/apis":                             "apis.json",
		groupPath:                           "group.json",
		groupPath + "/v1":                   "v1.json",
		groupPath + "/v1alpha3":             "v1alpha3.json",
		uploads.groupPath():                 "upload.json",
		uploadVersionPath:                   "upload-v1beta1.json",
		templates.groupPath():               "template.json",
		templateVersionPath:                 "template-v1alpha1.json",
		"/openapi/v2":                       "openapi-v2.json",
		"/openapi/v3":                       "openapi-v3.json",
		"/openapi/v3" + groupPath + "/v1":   "openapi-v3-v1.json",
		"/openapi/v3" + uploadVersionPath:   "openapi-v3-upload.json",
		"/openapi/v3" + templateVersionPath: "openapi-v3-template.json",
	} {
		t.Run(file, func(t *testing.T) {
			answer := get(t, http.MethodGet, path)
			if answer.Code != http.StatusOK || answer.Header().Get("Content-Type") != "application/json" {
				t.Fatalf("got %d %v %s", answer.Code, answer.Header(), answer.Body)
			}
			var got bytes.Buffer
			if err := json.Indent(&got, namesOfDefinitions(t, answer.Body.Bytes()), "", " "); err != nil {
				t.Fatal(err)
			}
			fixture.Golden(t, filepath.Join("testdata", file), append(got.Bytes(), '\n'))
		})
	}
}

// namesOfDefinitions is a page with the names of its definitions in their place, if it has any: what Go's types say is theirs.
func namesOfDefinitions(t *testing.T, page []byte) []byte {
	t.Helper()
	content := map[string]any{}
	if err := json.Unmarshal(page, &content); err != nil {
		t.Fatal(err)
	}
	within, name := content, "definitions"
	if components, isMap := content["components"].(map[string]any); isMap {
		within, name = components, "schemas"
	}
	definitions, isMap := within[name].(map[string]any)
	if !isMap {
		return page
	}
	within[name] = slices.Sorted(maps.Keys(definitions))
	short, err := json.Marshal(content)
	if err != nil {
		t.Fatal(err)
	}
	return short
}

// Every route that is served is described in full, and nothing else is.
func TestEveryRouteIsDescribed(t *testing.T) {
	described := func(path string, about description) {
		if about.does == "" || len(about.answers) == 0 {
			t.Errorf("%s is served, and not described; add it to describe.go", path)
		}
		for segment := range strings.SplitSeq(path, "/") {
			if name, is := strings.CutPrefix(segment, "{"); is && ofPath[strings.TrimSuffix(name, "}")].name == "" {
				t.Errorf("the parameter %s of %s is not described", segment, path)
			}
		}
	}
	served := map[string]bool{}
	for _, r := range routes {
		if r.missing == "" {
			served[r.path] = true
			described(r.path, descriptions[r.path])
		}
	}
	for path := range descriptions {
		if !served[path] {
			t.Errorf("%s is described, and not served", path)
		}
	}
	served = map[string]bool{}
	for _, r := range versionPages {
		if end := strings.TrimPrefix(r.path, versionPath); r.missing == "" {
			served[end] = true
			described(end, pageDescriptions[end])
		}
	}
	for end := range pageDescriptions {
		if !served[end] {
			t.Errorf("%s is described, and not served", end)
		}
	}
	for _, n := range neighbours() {
		served = map[string]bool{}
		for _, r := range n.routes {
			served[r.path] = true
			described(r.path, n.descriptions[r.path])
		}
		for path := range n.descriptions {
			if !served[path] {
				t.Errorf("%s of %s is described, and not served", path, n.group())
			}
		}
	}
}

func TestWhatIsNotThereIsAStatus(t *testing.T) {
	object := groupPath + "/v1/namespaces/prod/virtualmachines/web/"
	tokens := uploads.groupPath() + "/v1beta1/namespaces/prod/uploadtokenrequests"
	template := "/namespaces/prod/virtualmachinetemplates/debian/"
	for name, c := range map[string]struct {
		method, path string
		wantCode     int32
		wantWords    string
	}{
		"a path that there is not":           {http.MethodGet, "/webhook", http.StatusNotFound, "there is no /webhook"},
		"a version that there is not":        {http.MethodPut, groupPath + "/v2/namespaces/prod/virtualmachines/web/start", http.StatusNotFound, "there is no"},
		"discovery of no version":            {http.MethodGet, groupPath + "/v2", http.StatusNotFound, "there is no"},
		"a subresource that there is not":    {http.MethodPut, object + "fly", http.StatusNotFound, "there is no"},
		"another method":                     {http.MethodPost, object + "start", http.StatusMethodNotAllowed, "virtualmachines/start"},
		"somebody whom nobody vouches for":   {http.MethodPut, object + "start", http.StatusServiceUnavailable, "front proxy"},
		"nor is what is missing told to him": {http.MethodPut, object + "migrate", http.StatusServiceUnavailable, "front proxy"},
		"profiles for a stranger":            {http.MethodGet, groupPath + "/v1/dump-cluster-profiler", http.StatusServiceUnavailable, "front proxy"},
		"a recording for a stranger":         {http.MethodGet, groupPath + "/v1alpha3/start-cluster-profiler", http.StatusServiceUnavailable, "front proxy"},
		"the image of tools that none is of": {http.MethodGet, groupPath + "/v1/guestfs", http.StatusNotImplemented, "virtctl guestfs --image"},
		"reading tokens":                     {http.MethodGet, tokens, http.StatusMethodNotAllowed, "uploadtokenrequests"},
		"a token for a stranger":             {http.MethodPost, tokens, http.StatusServiceUnavailable, "front proxy"},
		"a template that is only read":       {http.MethodGet, templates.groupPath() + "/v1beta1" + template + "process", http.StatusMethodNotAllowed, "virtualmachinetemplates/process"},
		"a VM that is put":                   {http.MethodPut, templates.groupPath() + "/v1alpha1" + template + "create", http.StatusMethodNotAllowed, "virtualmachinetemplates/create"},
		"a template for a stranger":          {http.MethodPost, templates.groupPath() + "/v1alpha1" + template + "process", http.StatusServiceUnavailable, "front proxy"},
		"a VM of a template for a stranger":  {http.MethodPost, templates.groupPath() + "/v1beta1" + template + "create", http.StatusServiceUnavailable, "front proxy"},
		"templates of no version":            {http.MethodPost, templates.groupPath() + "/v1" + template + "process", http.StatusNotFound, "there is no"},
		"discovery of templates of none":     {http.MethodGet, templates.groupPath() + "/v1", http.StatusNotFound, "there is no"},
		"a group that there is not":          {http.MethodGet, "/apis/clone.cdi.kubevirt.io", http.StatusNotFound, "there is no"},
		"an API server that is away":         {http.MethodGet, groupPath + "/v1/healthz", http.StatusInternalServerError, "connection refused"},
	} {
		t.Run(name, func(t *testing.T) {
			answer := get(t, c.method, c.path)
			status := metav1.Status{}
			if err := json.Unmarshal(answer.Body.Bytes(), &status); err != nil {
				t.Fatalf("%s: %v", answer.Body, err)
			}
			if answer.Code != int(c.wantCode) || status.Code != c.wantCode || status.Kind != "Status" || !strings.Contains(status.Message, c.wantWords) {
				t.Errorf("got %d %+v, want %d with %q", answer.Code, status, c.wantCode, c.wantWords)
			}
		})
	}
}

func TestHealthAndVersion(t *testing.T) {
	if answer := get(t, http.MethodGet, "/healthz"); answer.Code != http.StatusOK || answer.Body.String() != "ok" {
		t.Errorf("got %d %s", answer.Code, answer.Body)
	}
	if answer := get(t, http.MethodGet, groupPath+"/v1/version"); !strings.Contains(answer.Body.String(), `"gitVersion":"v0.0.0-test"`) {
		t.Errorf("got %s", answer.Body)
	}
}

func TestTheImageOfTheGuestfsTools(t *testing.T) {
	server := unconnected()
	server.options.GuestfsImage = "registry.example/slipway-guestfs:v1"
	answer := ask(t, server, http.MethodGet, groupPath+"/v1/guestfs")
	if want := `{"digest":"","gsImage":"registry.example/slipway-guestfs:v1","imagePrefix":"","registry":"","tag":""}`; strings.TrimSpace(answer.Body.String()) != want {
		t.Errorf("got %d %s, want %s", answer.Code, answer.Body, want)
	}
}

// A page for users lists what is served and what is not: every route is on it.
func TestThePageForUsersNamesEveryRoute(t *testing.T) {
	page, err := os.ReadFile("../../docs/subresources.md")
	if err != nil {
		t.Fatal(err)
	}
	parameters := regexp.MustCompile(`/\{(port|protocol)\}`)
	for _, r := range versionPages {
		if end := strings.TrimPrefix(r.path, versionPath+"/"); end != "healthz" && !bytes.Contains(page, []byte("`"+end+"`")) {
			t.Errorf("docs/subresources.md does not name `%s`", end)
		}
	}
	for _, r := range slices.Concat(routes, templates.routes) {
		name := strings.ReplaceAll(parameters.ReplaceAllString(r.path, ""), "/{name}", "")
		_, part, found := strings.Cut(name, "/")
		if !found {
			part = name
		}
		if !bytes.Contains(page, []byte("`"+part+"`")) {
			t.Errorf("docs/subresources.md does not name `%s` of %s", part, r.path)
		}
	}
}
