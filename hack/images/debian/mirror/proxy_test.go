package mirror

import (
	"net/http"
	"testing"
)

const dump = `Acquire::http::Proxy http://all.example.org:3128
Acquire::http::Proxy::Near.example.org DIRECT
Acquire::http::Proxy::far.example.org http://far.example.org:8080/
Acquire::https::Proxy::far.example.org http://secure.example.org:8080/
`

func TestProxies(t *testing.T) {
	proxies := parseProxies(dump)
	for address, want := range map[string]string{
		"http://mirror.example.org/debian":  "http://all.example.org:3128",
		"https://mirror.example.org/debian": "http://all.example.org:3128",
		"http://near.example.org/debian":    "",
		"http://far.example.org/debian":     "http://far.example.org:8080/",
		"https://far.example.org/debian":    "http://secure.example.org:8080/",
	} {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, address, nil)
		if err != nil {
			t.Fatal(err)
		}
		got, err := proxies.For(request)
		if err != nil || got == nil && want != "" || got != nil && got.String() != want {
			t.Errorf("%s goes through %v (%v), want %q", address, got, err, want)
		}
	}
	want := `Acquire::http::proxy "http://all.example.org:3128";
Acquire::http::proxy::far.example.org "http://far.example.org:8080/";
Acquire::http::proxy::near.example.org "DIRECT";
Acquire::https::proxy::far.example.org "http://secure.example.org:8080/";
`
	if got := proxies.AptConfig(); got != want {
		t.Errorf("apt's configuration:\n%s\nwant:\n%s", got, want)
	}
}

func TestAProxyThatIsNoAddressIsAnError(t *testing.T) {
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://mirror.example.org/", nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := parseProxies("Acquire::http::Proxy ://\n").For(request); err == nil {
		t.Error("no error")
	}
}
