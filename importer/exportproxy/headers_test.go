package exportproxy

import (
	"encoding/base64"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	exportv1 "kubevirt.io/api/export/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-vm/slipway/internal/vmexport"
)

// All exports have one origin, and not all who answer are to be trusted.
func TestAnAnswerConcernsItsExportAlone(t *testing.T) {
	var seen http.Header
	var host string
	const page = at + "/volumes/dumps/dir/page.html"
	read := -1
	to := "https://elsewhere.example.com/"
	s := newStage(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		seen, host, read = r.Header, r.Host, len(body)
		for _, name := range []string{"Set-Cookie", "Alt-Svc", "Strict-Transport-Security", "Clear-Site-Data", "Access-Control-Allow-Origin", "Refresh", "Link"} {
			w.Header().Set(name, "x")
		}
		w.Header().Set("Cache-Control", "public, max-age=86400")
		w.Header().Set("Location", to)
		w.WriteHeader(http.StatusFound)
		_, _ = io.WriteString(w, "<script>")
	}))
	response, _, _ := s.ask("GET", page, "Cookie: c=d", "Authorization: Bearer of-the-ingress", "Referer: "+s.front.URL+"/?"+vmexport.Token+"=a", "X-Auth-Request-Email: a@b",
		"Connection: Upgrade", "Upgrade: x", vmexport.HeaderBase+": https://x", vmexport.HeaderAuthority+": eA==")
	for name, want := range map[string]string{
		"Set-Cookie": "", "Alt-Svc": "", "Strict-Transport-Security": "", "Clear-Site-Data": "", "Access-Control-Allow-Origin": "", "Refresh": "", "Link": "", "Location": "",
		"Content-Security-Policy": "default-src 'none'; sandbox", "X-Content-Type-Options": "nosniff", "Cache-Control": "private, no-store", "Referrer-Policy": "no-referrer",
	} {
		if got := response.Header.Get(name); got != want {
			t.Errorf("%s is %q, want %q", name, got, want)
		}
	}
	for _, name := range []string{"Cookie", "Authorization", "Referer", "X-Auth-Request-Email", "Upgrade", vmexport.HeaderBase, vmexport.HeaderAuthority} {
		if seen.Get(name) != "" {
			t.Errorf("%s came through", name)
		}
	}
	if seen.Get(vmexport.Token) != token || host != "virt-export-web.shop.svc" {
		t.Errorf("%s was asked with %v", host, seen)
	}
	for _, to = range []string{"//elsewhere.example.com/", "elsewhere"} {
		if response, _, _ := s.ask("GET", page); response.Header.Get("Location") != "" {
			t.Errorf("%s leads to %s", to, response.Header.Get("Location"))
		}
	}
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.front.URL+page, strings.NewReader("a body"))
	s.must(err)
	answer, err := s.front.Client().Do(request)
	s.must(err)
	answer.Body.Close()
	if read != 0 {
		t.Errorf("%d bytes of a body came through", read)
	}
}

func TestTheDefinitionIsOfTheExternalAddresses(t *testing.T) {
	s := newStage(t, nil)
	if response, body, _ := s.ask("GET", at+vmexport.PathExternalManifest); response.StatusCode != http.StatusBadRequest {
		t.Errorf("of an export that is not published: %s %s", response.Status, body)
	}
	base := vmexport.ExternalBase("exports.example.com", "shop", "web")
	s.exports.known[client.ObjectKey{Namespace: "shop", Name: "web"}].Status.Links.External = &exportv1.VirtualMachineExportLink{
		Cert: strings.Repeat("certificate\n", 1000), Manifests: []exportv1.VirtualMachineExportManifest{{Type: exportv1.AllManifests, Url: base + vmexport.PathExternalManifest}},
	}
	response, body, _ := s.ask("GET", at+vmexport.PathExternalManifest)
	if want := fmt.Sprintf("%q:%q", "url", vmexport.URL(base, "root", exportv1.KubeVirtGz)); response.StatusCode != http.StatusOK || !strings.Contains(string(body), want) {
		t.Errorf("%s %s, want %s", response.Status, body, want)
	}
	if response, body, _ := s.ask("GET", at+vmexport.PathManifest, vmexport.HeaderBase+": "+base, vmexport.HeaderAuthority+": "+base64.StdEncoding.EncodeToString(nil)); response.StatusCode != http.StatusOK ||
		!strings.Contains(string(body), "virt-export-web.shop.svc") {
		t.Errorf("that of the cluster: %s %s", response.Status, body)
	}
}
