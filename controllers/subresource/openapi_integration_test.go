//go:build integration

package subresource_test

import (
	"encoding/json"
	"errors"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	virtv1 "kubevirt.io/api/core/v1"
	cdiupload "kubevirt.io/containerized-data-importer-api/pkg/apis/upload/v1beta1"

	"github.com/slipway-vm/slipway/controllers/subresource"
	templateverbs "github.com/slipway-vm/slipway/internal/api/virtualmachinetemplate/verbs"
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
	for _, gv := range []schema.GroupVersion{
		{Group: virtv1.SubresourceGroupName, Version: "v1"}, {Group: virtv1.SubresourceGroupName, Version: "v1alpha3"}, cdiupload.SchemeGroupVersion,
		templateverbs.Versions[0], templateverbs.Versions[1],
	} {
		for _, page := range []string{"/openapi/v2", "/openapi/v3/apis/" + gv.String()} {
			var read document
			served := subresource.Served(gv)
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
			}, bound, "500ms").Should(gomega.Equal(len(served)), "paths of "+gv.String()+" in "+page)
			for path, methods := range served {
				for _, method := range methods {
					checkVerb(t, read, read.verb(t, path, method), page+": "+method+" "+path)
				}
			}
			switch gv.Group {
			case cdiupload.SchemeGroupVersion.Group:
				checkTokenRequest(t, read, page)
			case templateverbs.Group:
				checkTemplates(t, read, gv)
			default:
				checkBodies(t, read, gv.Version)
			}
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

// checkTokenRequest looks for the request for a token by its kind, as clients do.
func checkTokenRequest(t *testing.T, read document, page string) {
	t.Helper()
	path := "/apis/" + cdiupload.SchemeGroupVersion.String() + "/namespaces/{namespace}/uploadtokenrequests"
	to, _ := read.verb(t, path, "post").body()["$ref"].(string)
	definition := read.definition(to)
	got, err := json.Marshal([]any{definition["x-kubernetes-group-version-kind"], definition["required"]})
	must(t, err)
	if want := `[[{"group":"upload.cdi.kubevirt.io","kind":"UploadTokenRequest","version":"v1beta1"}],["spec"]]`; string(got) != want {
		t.Errorf("%s of %s is told of as %s, want %s", to, page, got, want)
	}
}

// checkTemplates looks for fields of what is sent to a template, and got from it.
func checkTemplates(t *testing.T, read document, gv schema.GroupVersion) {
	t.Helper()
	for _, end := range []string{"process", "create"} {
		v := read.verb(t, "/apis/"+gv.String()+"/namespaces/{namespace}/virtualmachinetemplates/{name}/"+end, "post")
		answer := v.Responses["200"].Schema
		if answer == nil {
			answer = v.Responses["200"].Content["application/json"].Schema
		}
		for field, schema := range map[string]map[string]any{"parameters": v.body(), "virtualMachine": answer} {
			to, _ := schema["$ref"].(string)
			properties, _ := read.definition(to)["properties"].(map[string]any)
			if properties[field] == nil {
				t.Errorf("%s of %s: %q has no field %s: %v", end, gv, to, field, properties)
			}
		}
	}
}

// kubectl runs the real one, and returns what it says and whether it failed.
func (c *cluster) kubectl(t *testing.T, as *rest.Config, line, input string) (string, bool) {
	t.Helper()
	file := clientcmdapi.NewConfig()
	file.Clusters["test"] = &clientcmdapi.Cluster{Server: as.Host, CertificateAuthorityData: as.CAData}
	file.AuthInfos["test"] = &clientcmdapi.AuthInfo{ClientCertificateData: as.CertData, ClientKeyData: as.KeyData}
	file.Contexts["test"] = &clientcmdapi.Context{Cluster: "test", AuthInfo: "test", Namespace: "default"}
	file.CurrentContext = "test"
	config := filepath.Join(t.TempDir(), "kubeconfig")
	must(t, clientcmd.WriteToFile(*file, config))
	kubectl := exec.CommandContext(t.Context(), filepath.Join(os.Getenv("KUBEBUILDER_ASSETS"), "kubectl"),
		append([]string{"--kubeconfig=" + config, "--cache-dir=" + t.TempDir(), "--request-timeout=5m"}, strings.Fields(line)...)...)
	kubectl.Stdin = strings.NewReader(input)
	said, err := kubectl.CombinedOutput()
	if exit := (*exec.ExitError)(nil); err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return string(said), err != nil
}

// explainsTokens asks the real kubectl what it makes of the documents.
func explainsTokens(t *testing.T, c *cluster) {
	t.Helper()
	request := func(field string) string {
		return "{apiVersion: upload.cdi.kubevirt.io/v1beta1, kind: UploadTokenRequest, metadata: {name: t}, spec: {" + field + "}}"
	}
	for _, one := range []struct {
		name, line, input, want string
		fails                   bool
	}{
		{"its kind is explained", "explain uploadtokenrequest", "", "spec\t<UploadTokenRequestSpec> -required-", false},
		{"its field, too", "explain utr.spec.pvcName", "", "PvcName is the name of the PVC to upload to", false},
		{"a good one is valid", "create --validate=strict --dry-run=client -f -", request("pvcName: disk"), "uploadtokenrequest.upload.cdi.kubevirt.io/t created (dry run)", false},
		{"a field that there is not is found", "create --validate=strict --dry-run=client -f -", request("pvcName: disk, claim: disk"), `unknown field "claim"`, true},
		{"so is one that is missing", "create --validate=strict --dry-run=client -f -", request(""), `missing required field "pvcName"`, true},
	} {
		t.Run(one.name, func(t *testing.T) {
			said, failed := c.kubectl(t, c.Config, one.line, one.input)
			if failed != one.fails || !strings.Contains(said, one.want) {
				t.Errorf("kubectl %s: failed %t: %s; want %s", one.line, failed, said, one.want)
			}
		})
	}
}
