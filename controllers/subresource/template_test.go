package subresource

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/go-logr/logr"
	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	virtv1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/yaml"

	templateverbs "github.com/slipway-vm/slipway/internal/api/virtualmachinetemplate/verbs"
	"github.com/slipway-vm/slipway/internal/scheme"
)

// Templates of the namespace prod.
const storedTemplates = `
- metadata: {name: debian}
  spec:
    message: ${NAME} is made.
    parameters: [{name: NAME, value: web}, {name: CORES, value: "1"}, {name: PASSWORD}]
    virtualMachine:
      metadata: {name: "${NAME}", namespace: catalog, labels: {password: "${PASSWORD}"}}
      spec: {runStrategy: Halted, template: {spec: {domain: {cpu: {cores: "${{CORES}}"}}}}}
- metadata: {name: needy}
  spec:
    parameters: [{name: NAME, required: true}]
    virtualMachine: {metadata: {name: "${NAME}"}, spec: {runStrategy: Halted}}
- metadata: {name: elsewhere}
  spec:
    parameters: [{name: WHERE, value: other}]
    virtualMachine: {metadata: {name: web, namespace: "${WHERE}"}, spec: {runStrategy: Halted}}
- metadata: {name: owned}
  spec:
    virtualMachine: {metadata: {name: web, ownerReferences: [{apiVersion: v1, kind: ConfigMap, name: a, uid: b}]}, spec: {runStrategy: Halted}}
- metadata: {name: odd}
  spec:
    virtualMachine: {metadata: {name: web}, spec: {colour: red}}
- metadata: {name: taken}
  spec:
    virtualMachine: {metadata: {name: taken}, spec: {runStrategy: Halted}}
- metadata: {name: broken}
  spec:
    virtualMachine: {metadata: {name: broken}, spec: {runStrategy: Halted}}
`

// catalog is a server of storedTemplates, and whom to ask what was created. Its users may what the words of their names say.
func catalog(t *testing.T, authority *issued) (*Server, client.Client) {
	t.Helper()
	var stored []unstructured.Unstructured
	var trees []map[string]any
	if err := yaml.Unmarshal([]byte(storedTemplates), &trees); err != nil {
		t.Fatal(err)
	}
	for _, tree := range trees {
		tree["apiVersion"], tree["kind"] = "template.kubevirt.io/v1beta1", templateKind
		stored = append(stored, unstructured.Unstructured{Object: tree})
	}
	taken := &virtv1.VirtualMachine{ObjectMeta: metav1.ObjectMeta{Namespace: "prod", Name: "taken"}}
	builder := fake.NewClientBuilder().WithScheme(scheme.New()).WithObjects(taken)
	for i := range stored {
		stored[i].SetNamespace("prod")
		builder = builder.WithObjects(&stored[i])
	}
	c := builder.WithInterceptorFuncs(interceptor.Funcs{
		Create: func(ctx context.Context, c client.WithWatch, object client.Object, options ...client.CreateOption) error {
			if object.GetName() == "broken" {
				return apierrors.NewInternalError(http.ErrServerClosed)
			}
			review, is := object.(*authorizationv1.SubjectAccessReview)
			if !is {
				return c.Create(ctx, object, options...)
			}
			what := review.Spec.ResourceAttributes
			right := strings.Join([]string{what.Verb, what.Group, what.Resource, what.Subresource, what.Namespace, what.Name}, " ")
			review.Status.Allowed = slices.Contains(rights[review.Spec.User], right)
			return nil
		},
	}).Build()
	proxy := &frontProxy{log: logr.Discard()}
	proxy.follow(configured(authority))
	return newServer(c, c, proxy, nil, Options{}), c
}

// rights are what users may do: verb, group, resource, subresource, namespace, name.
var rights = map[string][]string{
	"reader": {"create subresources.template.kubevirt.io virtualmachinetemplates process prod debian"},
	"maker":  {"create subresources.template.kubevirt.io virtualmachinetemplates create prod debian"},
	"other":  {"create kubevirt.io virtualmachines  prod "},
	"jane":   slices.Concat(rightsTo("process"), rightsTo("create")),
}

func rightsTo(verb string) []string {
	var all []string
	for _, name := range []string{"debian", "needy", "elsewhere", "owned", "odd", "taken", "broken", "nowhere"} {
		all = append(all, "create subresources.template.kubevirt.io virtualmachinetemplates "+verb+" prod "+name)
	}
	return all
}

func TestWhatIsAnsweredOfTemplates(t *testing.T) {
	authority := issue(t, "front proxies", nil)
	certificate := issue(t, "front-proxy-client", authority)
	const v1beta1, v1alpha1 = "v1beta1", "v1alpha1"
	for name, c := range map[string]struct {
		user, version, path, body string
		wantCode                  int
		wantWords                 string
	}{
		"all defaults":                 {"jane", v1beta1, "debian/process", "", http.StatusOK, `"message":"web is made."`},
		"an object without fields":     {"jane", v1alpha1, "debian/process", "{}", http.StatusOK, `"apiVersion":"subresources.template.kubevirt.io/v1alpha1"`},
		"values":                       {"jane", v1beta1, "debian/process", `{"parameters":{"NAME":"db","CORES":"2"}}`, http.StatusOK, `"cores":2`},
		"values in YAML":               {"jane", v1beta1, "debian/process", "parameters: {NAME: db}", http.StatusOK, `"name":"db"`},
		"the kind, of another version": {"jane", v1beta1, "debian/process", `{"kind":"ProcessOptions","apiVersion":"subresources.template.kubevirt.io/v1alpha1"}`, http.StatusOK, `"kind":"ProcessedVirtualMachineTemplate"`},
		"a fixed namespace is dropped": {"jane", v1beta1, "debian/create", "", http.StatusOK, `"namespace":"prod"`},
		"who may process alone":        {"reader", v1beta1, "debian/process", "", http.StatusOK, `"kind":"VirtualMachine"`},
		"who may have that VM alone":   {"maker", v1beta1, "debian/create", "", http.StatusOK, `"kind":"VirtualMachine"`},
		"where else it may be":         {"jane", v1beta1, "elsewhere/process", "", http.StatusOK, `"namespace":"other"`},

		"no JSON":                         {"jane", v1beta1, "debian/process", "{", http.StatusBadRequest, "reading the ProcessOptions"},
		"another kind":                    {"jane", v1beta1, "debian/process", `{"kind":"StartOptions"}`, http.StatusBadRequest, `kind is "StartOptions"; write ProcessOptions`},
		"another group":                   {"jane", v1alpha1, "debian/process", `{"apiVersion":"template.kubevirt.io/v1beta1"}`, http.StatusBadRequest, "write subresources.template.kubevirt.io/v1alpha1"},
		"no group":                        {"jane", v1alpha1, "debian/process", `{"apiVersion":"a/b/c"}`, http.StatusBadRequest, `apiVersion is "a/b/c"`},
		"another namespace":               {"jane", v1beta1, "debian/process", `{"metadata":{"namespace":"other"}}`, http.StatusBadRequest, "metadata.namespace"},
		"an unknown field":                {"jane", v1beta1, "debian/process", `{"parameter":{}}`, http.StatusBadRequest, `unknown field "parameter"`},
		"a value that is no text":         {"jane", v1beta1, "debian/process", `{"parameters":{"CORES":{}}}`, http.StatusBadRequest, "reading the ProcessOptions"},
		"too much":                        {"jane", v1beta1, "debian/process", strings.Repeat(" ", maxBody+1), http.StatusBadRequest, "too large"},
		"an attempt that is not readable": {"jane", v1beta1, "debian/create?dryRun=All;pretty=true", "", http.StatusBadRequest, "reading the query"},
		"an attempt at what there is not": {"jane", v1beta1, "debian/create?dryRun=Some", "", http.StatusBadRequest, `invalid dryRun directive "Some": use All`},

		"who may process, and not create":     {"reader", v1beta1, "debian/create", "", http.StatusForbidden, `virtualmachinetemplates/create`},
		"who may VMs, and not of templates":   {"other", v1beta1, "debian/create", "", http.StatusForbidden, `virtualmachinetemplates/create`},
		"who may create may not process":      {"maker", v1beta1, "debian/process", "", http.StatusForbidden, `virtualmachinetemplates/process`},
		"a stranger does not learn about any": {"stranger", v1beta1, "nowhere/process", "{", http.StatusForbidden, "virtualmachinetemplates/process"},

		"a template that there is not":     {"jane", v1beta1, "nowhere/process", "", http.StatusNotFound, `virtualmachinetemplates.template.kubevirt.io "nowhere" not found`},
		"a VM of one that there is not":    {"jane", v1beta1, "nowhere/create", "", http.StatusNotFound, "not found"},
		"a parameter that there is not":    {"jane", v1beta1, "debian/process", `{"parameters":{"COLOUR":"red"}}`, http.StatusConflict, "it has no parameter COLOUR; it has CORES, NAME, PASSWORD"},
		"a VM with one that there is not":  {"jane", v1alpha1, "debian/create", `{"parameters":{"COLOUR":"red"}}`, http.StatusConflict, "it has no parameter COLOUR"},
		"a parameter that is missing":      {"jane", v1beta1, "needy/process", "", http.StatusUnprocessableEntity, "required params are missing values: NAME"},
		"a value of another type":          {"jane", v1beta1, "debian/process", `{"parameters":{"CORES":"many"}}`, http.StatusUnprocessableEntity, "reading the VirtualMachine of VirtualMachineTemplate debian"},
		"a field that VMs do not have":     {"jane", v1beta1, "odd/create", "", http.StatusUnprocessableEntity, `unknown field "spec.colour"`},
		"another namespace's VM":           {"jane", v1beta1, "elsewhere/create", "", http.StatusUnprocessableEntity, "spec.virtualMachine.metadata.namespace"},
		"a VM with an owner":               {"jane", v1beta1, "owned/create", "", http.StatusUnprocessableEntity, "spec.virtualMachine.metadata.ownerReferences: Forbidden"},
		"a VM that there is":               {"jane", v1beta1, "taken/create", "", http.StatusConflict, `virtualmachines.kubevirt.io "taken" already exists`},
		"an API server that does not work": {"jane", v1beta1, "broken/create", "", http.StatusInternalServerError, "creating VirtualMachine prod/broken"},
	} {
		t.Run(name, func(t *testing.T) {
			server, _ := catalog(t, authority)
			answer := askFor(t, server, certificate, c.user, c.version, c.path, c.body)
			said := answer.Body.String()
			if answer.Code != http.StatusOK {
				status := metav1.Status{}
				if err := json.Unmarshal(answer.Body.Bytes(), &status); err != nil || status.Kind != "Status" || int(status.Code) != answer.Code {
					t.Fatalf("%s: %v", said, err)
				}
				said = status.Message
			}
			if answer.Code != c.wantCode || !strings.Contains(said, c.wantWords) {
				t.Errorf("got %d %s, want %d with %s", answer.Code, said, c.wantCode, c.wantWords)
			}
			if answer.Code == http.StatusOK && answer.Header().Get("Cache-Control") != "no-store" {
				t.Error("caches may keep what may have passwords in it")
			}
		})
	}
}

// askFor posts body as user, whom the front proxy names by its certificate.
func askFor(t *testing.T, server *Server, certificate *issued, user, version, path, body string) *httptest.ResponseRecorder {
	t.Helper()
	r := httptest.NewRequest(http.MethodPost, templates.groupPath()+"/"+version+"/namespaces/prod/virtualmachinetemplates/"+path, strings.NewReader(body))
	r.Header.Set("X-Remote-User", user)
	r.TLS = &tls.ConnectionState{PeerCertificates: []*x509.Certificate{certificate.cert}}
	recorder := httptest.NewRecorder()
	server.ServeHTTP(recorder, r)
	return recorder
}

func TestOnlyCreateStoresAVM(t *testing.T) {
	authority := issue(t, "front proxies", nil)
	certificate := issue(t, "front-proxy-client", authority)
	server, c := catalog(t, authority)
	for _, step := range []struct {
		path   string
		stored bool
	}{{"process", false}, {"create?dryRun=All", false}, {"create", true}} {
		answer := askFor(t, server, certificate, "jane", "v1beta1", "debian/"+step.path, "")
		got := &templateverbs.ProcessedVirtualMachineTemplate{}
		if err := json.Unmarshal(answer.Body.Bytes(), got); err != nil || answer.Code != http.StatusOK {
			t.Fatalf("%s: got %d %s, %v", step.path, answer.Code, answer.Body, err)
		}
		if got.TemplateRef == nil || got.TemplateRef.Namespace != "prod" || got.TemplateRef.Name != "debian" ||
			got.VirtualMachine.APIVersion != "kubevirt.io/v1" || got.VirtualMachine.Kind != "VirtualMachine" || got.VirtualMachine.Name != "web" {
			t.Errorf("%s: got %s", step.path, answer.Body)
		}
		err := c.Get(t.Context(), client.ObjectKey{Namespace: "prod", Name: "web"}, &virtv1.VirtualMachine{})
		if client.IgnoreNotFound(err) != nil || (err == nil) != step.stored {
			t.Errorf("%s: the VM is read with %v, stored %t is wanted", step.path, err, step.stored)
		}
	}
}
