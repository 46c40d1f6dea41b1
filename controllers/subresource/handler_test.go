package subresource

import (
	"crypto/tls"
	"crypto/x509"
	"net/http"
	"net/http/httptest"
	"reflect"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/slipway-vm/slipway/controllers/hyperconverged/components"
	"github.com/slipway-vm/slipway/controllers/hyperconverged/render"
	"github.com/slipway-vm/slipway/internal/names"
)

func TestOnlyTheProcessThatTheNodeTellsOfIsSpokenTo(t *testing.T) {
	authority := issue(t, names.HandlerServerName, nil)
	for name, c := range map[string]struct {
		serving, published *issued
		wantWords          string
	}{
		"its own":                {authority, authority, ""},
		"one that was before it": {authority, issue(t, names.HandlerServerName, nil), "certificate"},
		"another program":        {issue(t, "virt-api", nil), nil, names.HandlerServerName},
	} {
		t.Run(name, func(t *testing.T) {
			server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusTeapot) }))
			server.TLS = &tls.Config{Certificates: []tls.Certificate{c.serving.tls()}, MinVersion: tls.VersionTLS13}
			server.StartTLS()
			defer server.Close()
			published := c.published
			if published == nil {
				published = c.serving
			}
			h := handler{node: "node-1", roots: x509.NewCertPool()}
			h.roots.AppendCertsFromPEM(published.pem())
			transport := h.transport()
			defer transport.CloseIdleConnections()
			response, err := (&http.Client{Transport: transport}).Get(server.URL)
			if err == nil {
				_ = response.Body.Close()
			}
			if c.wantWords == "" && err != nil || c.wantWords != "" && (err == nil || !strings.Contains(err.Error(), c.wantWords)) {
				t.Errorf("got %v, want %q", err, c.wantWords)
			}
		})
	}
}

func TestVirtHandlerSeesNothingOfWhoAsks(t *testing.T) {
	got := seen(http.Header{
		"Authorization": {"Bearer user's"}, "Cookie": {"a"}, "X-Remote-User": {"jane"}, "X-Forwarded-For": {"1.2.3.4"}, "Impersonate-User": {"x"},
		"Accept": {"image/png"}, "Upgrade": {"websocket"}, "Sec-Websocket-Protocol": {subprotocol},
	})
	want := http.Header{"Accept": {"image/png"}, "Upgrade": {"websocket"}, "Sec-Websocket-Protocol": {subprotocol}}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

func TestThePodHasTheTokenThatIsRead(t *testing.T) {
	objects, err := render.Folder(components.Files(), "virt-api", render.Values{Namespace: "slipway"})
	if err != nil {
		t.Fatal(err)
	}
	for _, object := range objects {
		if object.GetKind() != "Deployment" {
			continue
		}
		deployment := &appsv1.Deployment{}
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, deployment); err != nil {
			t.Fatal(err)
		}
		spec := deployment.Spec.Template.Spec
		token := spec.Volumes[0].Projected.Sources[0].ServiceAccountToken
		if file := spec.Containers[0].VolumeMounts[0].MountPath + "/" + token.Path; file != TokenFile {
			t.Errorf("the token is %s, and %s is read", file, TokenFile)
		}
		if token.Audience != names.HandlerAudience {
			t.Errorf("the token is for %s, and virt-handler takes those for %s", token.Audience, names.HandlerAudience)
		}
		return
	}
	t.Error("virt-api has no Deployment")
}
