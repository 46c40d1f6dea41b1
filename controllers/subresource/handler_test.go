package subresource

import (
	"crypto/tls"
	"crypto/x509"
	"net/http"
	"net/http/httptest"
	"reflect"
	"strings"
	"testing"
)

func TestOnlyTheProcessThatTheNodeTellsOfIsSpokenTo(t *testing.T) {
	authority := issue(t, "node-1", nil)
	for name, c := range map[string]struct {
		serving, published *issued
		wantWords          string
	}{
		"its own":                {authority, authority, ""},
		"one that was before it": {authority, issue(t, "node-1", nil), "certificate"},
		"another node's":         {issue(t, "node-2", nil), nil, "node-1"},
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
