package disc

import (
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"strings"
	"testing"
)

// A guest gets packages and indexes whatever server it names; packages are fetched once, and nothing else is served.
func TestTheProxyServesTheArchive(t *testing.T) {
	asked := map[string]int{}
	upstream := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked[r.URL.Path]++
		if strings.Contains(r.URL.Path, "missing") {
			http.NotFound(w, r)
			return
		}
		_, _ = w.Write([]byte("content of " + r.URL.Path))
	}))
	defer upstream.Close()
	server := httptest.NewServer(&proxy{mirrors: []string{upstream.URL + "/mirror"}, cache: t.TempDir(), client: upstream.Client()})
	defer server.Close()
	address, err := url.Parse(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	guest := &http.Client{Transport: &http.Transport{Proxy: http.ProxyURL(address)}}
	for _, c := range []struct {
		url    string
		status int
		asked  string
		times  int
	}{
		{"http://deb.example.com/debian/dists/stable/Release", 200, "/mirror/dists/stable/Release", 1},
		{"http://deb.example.com/debian/dists/stable/Release", 200, "/mirror/dists/stable/Release", 2},
		{"http://deb.example.com/debian/pool/main/a/a.deb", 200, "/mirror/pool/main/a/a.deb", 1},
		{"http://other.example.com/debian/pool/main/a/a.deb", 200, "/mirror/pool/main/a/a.deb", 1},
		{"http://deb.example.com/debian/dists/missing/Release", 404, "/mirror/dists/missing/Release", 1},
		{"http://deb.example.com/debian/pool/main/missing.deb", 502, "/mirror/pool/main/missing.deb", 1},
		{"http://deb.example.com/other/file", 403, "/mirror/file", 0},
		{"http://deb.example.com/debian/%2e%2e/secret", 403, "/secret", 0},
	} {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, c.url, nil)
		if err != nil {
			t.Fatal(err)
		}
		answer, err := guest.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		_ = answer.Body.Close()
		if answer.StatusCode != c.status || asked[c.asked] != c.times {
			t.Errorf("%s: status %d, want %d; the mirror was asked %d times, want %d", c.url, answer.StatusCode, c.status, asked[c.asked], c.times)
		}
	}
}

// The lines that README.md shows for a disc are those by which the test makes it.
func TestTheReadmeMakesTheSameDisc(t *testing.T) {
	readme, err := os.ReadFile("../../../../pipelines/debian-installer/README.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range append([]string{"images/$release/", "/" + isolinux, "debian-installer-$release-netboot-amd64"}, media[1:]...) {
		if !strings.Contains(string(readme), want) {
			t.Errorf("README.md does not name %s", want)
		}
	}
	for line := range strings.Lines(bootMenu) {
		if !strings.Contains(string(readme), strings.TrimSpace(line)) {
			t.Errorf("README.md has no line %q", line)
		}
	}
}
