package proxy_test

import (
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/slipway-vm/slipway/internal/proxy"
	"github.com/slipway-vm/slipway/tests/fixture/forward"
)

func TestHostPort(t *testing.T) {
	for address, want := range map[string]string{
		"":                                 "",
		"proxy.example.com:3128":           "proxy.example.com:3128",
		"http://proxy.example.com":         "proxy.example.com:80",
		"https://user:a%40b@10.0.0.1":      "10.0.0.1:443",
		"http://[fd00::1]:3128/":           "[fd00::1]:3128",
		"user:password@proxy.example.com":  "proxy.example.com:80",
		"http://user:pass word@proxy:3128": "",
		"https://Bücher.example.com":       "xn--bcher-kva.example.com:443",
		"https://Proxy.example.com":        "Proxy.example.com:443",
	} {
		if got := proxy.HostPort(address); got != want {
			t.Errorf("%s: got %q, want %q", address, got, want)
		}
	}
}

// What proxies do is told by real ones: the HTTP client says it in its own way.
func TestWhatAProxyDidIsTold(t *testing.T) {
	server := httptest.NewTLSServer(http.NotFoundHandler())
	defer server.Close()
	login := url.UserPassword("importer", "pa55word")
	leads := forward.Start(t, login, map[string]string{"example.com:443": server.Listener.Addr().String()})
	secured := forward.StartTLS(t, nil, nil)
	gone := forward.Start(t, nil, nil)
	gone.Close()
	talks := forward.Start(t, login, nil)
	talks.Words = "authenticationrequired"
	for name, c := range map[string]struct {
		proxy, address string
		refusal        int
		unreached      string
		answered       bool
	}{
		"it leads to the server":     {proxy: leads.Address(login), address: "https://example.com/"},
		"it wants another password":  {proxy: leads.Address(url.UserPassword("importer", "secret")), address: "https://example.com/", refusal: http.StatusProxyAuthRequired},
		"it says so in other words":  {proxy: talks.Address(nil), address: "https://example.com/", refusal: http.StatusProxyAuthRequired, answered: true},
		"it says so to who listens":  {proxy: leads.Address(nil), address: "https://example.com/", refusal: http.StatusProxyAuthRequired, answered: true},
		"it leads who listens":       {proxy: leads.Address(login), address: "https://example.com/", answered: true},
		"it does not reach it":       {proxy: leads.Address(login), address: "https://other.example.com/", refusal: http.StatusBadGateway},
		"it is not there":            {proxy: gone.Address(login), address: "https://example.com/", unreached: "refused"},
		"it has a stranger's proofs": {proxy: secured.Address(nil), address: "https://example.com/", unreached: "certificate"},
	} {
		t.Run(name, func(t *testing.T) {
			by, err := proxy.Parse(c.proxy)
			if err != nil {
				t.Fatal(err)
			}
			transport := &http.Transport{Proxy: http.ProxyURL(by)}
			if c.answered {
				transport.OnProxyConnectResponse = proxy.Answered
			}
			defer transport.CloseIdleConnections()
			response, err := (&http.Client{Transport: transport}).Get(c.address) //nolint:noctx // the test's own end is soon enough
			if err == nil {
				response.Body.Close()
				t.Fatal("the server's certificate is taken")
			}
			if got := proxy.Refusal(err); got != c.refusal {
				t.Errorf("%v: it answers %d, want %d", err, got, c.refusal)
			}
			unreached := proxy.Unreached(err)
			if (unreached == nil) != (c.unreached == "") || unreached != nil && !strings.Contains(unreached.Error(), c.unreached) {
				t.Errorf("%v: it is not reached: %v, want %q", err, unreached, c.unreached)
			}
			if strings.Contains(err.Error(), "pa55word") || strings.Contains(err.Error(), "secret") {
				t.Errorf("the error has the password: %v", err)
			}
		})
	}
}
