package profiler

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	virtv1 "kubevirt.io/api/core/v1"

	"github.com/slipway-vm/slipway/internal/certs"
)

// authority makes what virt-api keeps in its Secret.
func authority(t *testing.T) map[string][]byte {
	t.Helper()
	data, _, _, err := certs.Renew(nil, []string{"virt-api"}, certs.DefaultLifetimes(), time.Now())
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func clientCertificate(t *testing.T, data map[string][]byte, name string, lifetime time.Duration) []tls.Certificate {
	t.Helper()
	cert, err := certs.IssueClient(data, name, lifetime, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	return []tls.Certificate{cert}
}

func serve(t *testing.T, guard *Guard) string {
	t.Helper()
	mux := http.NewServeMux()
	for path, handler := range Handlers(&Profiler{}, guard) {
		mux.Handle(path, handler)
	}
	server := httptest.NewUnstartedServer(mux)
	server.TLS = &tls.Config{ClientAuth: tls.RequestClientCert, MinVersion: tls.VersionTLS13}
	server.StartTLS()
	t.Cleanup(server.Close)
	return server.URL
}

func ask(t *testing.T, shown []tls.Certificate, method, url string) (int, string) {
	t.Helper()
	transport := &http.Transport{TLSClientConfig: &tls.Config{
		Certificates: shown, InsecureSkipVerify: true, MinVersion: tls.VersionTLS13, //nolint:gosec // who asks is what is tested
	}}
	defer transport.CloseIdleConnections()
	request, err := http.NewRequestWithContext(t.Context(), method, url, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	response, err := (&http.Client{Transport: transport}).Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	content, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return response.StatusCode, strings.TrimSpace(string(content))
}

func TestOnlyVirtAPIIsLetIn(t *testing.T) {
	ours, strangers := authority(t), authority(t)
	serving, err := tls.X509KeyPair(ours[certs.KeyCert], ours[certs.KeyKey])
	if err != nil {
		t.Fatal(err)
	}
	good := clientCertificate(t, ours, ClientName, time.Minute)
	for name, c := range map[string]struct {
		shown  []tls.Certificate
		method string
		off    bool
		fails  bool
		bundle []byte
		want   int
		words  string
	}{
		"virt-api":                           {shown: good, want: http.StatusOK},
		"nobody":                             {want: http.StatusUnauthorized, words: "virt-api only"},
		"one of another authority":           {shown: clientCertificate(t, strangers, ClientName, time.Minute), want: http.StatusForbidden, words: "not that of virt-api"},
		"another of the same authority":      {shown: clientCertificate(t, ours, "somebody", time.Minute), want: http.StatusForbidden, words: "not that of virt-api"},
		"one whose time is over":             {shown: clientCertificate(t, ours, ClientName, -time.Minute), want: http.StatusForbidden, words: "expired"},
		"virt-api's certificate of a server": {shown: []tls.Certificate{serving}, want: http.StatusForbidden, words: "not that of virt-api"},
		"virt-api, while it is off":          {shown: good, off: true, want: http.StatusForbidden, words: `"ClusterProfiler" feature gate must be enabled`},
		"nobody, while it is off":            {off: true, want: http.StatusUnauthorized, words: "virt-api only"},
		"virt-api, by another method":        {shown: good, method: http.MethodPost, want: http.StatusMethodNotAllowed, words: "GET"},
		"an API server that is away":         {shown: good, fails: true, want: http.StatusInternalServerError, words: "whom to trust"},
		"no authority yet":                   {shown: good, bundle: []byte{}, want: http.StatusInternalServerError, words: "no authority yet"},
	} {
		t.Run(name, func(t *testing.T) {
			url := serve(t, &Guard{
				Authorities: func(context.Context) ([]byte, error) {
					if c.fails {
						return nil, errors.New("connection refused")
					}
					if c.bundle != nil {
						return c.bundle, nil
					}
					return ours[certs.KeyBundle], nil
				},
				On: func(context.Context) (bool, error) { return !c.off, nil },
			})
			method := c.method
			if method == "" {
				method = http.MethodGet
			}
			for _, path := range []string{StartPath, StopPath, DumpPath} {
				if code, said := ask(t, c.shown, method, url+path); code != c.want || !strings.Contains(said, c.words) {
					t.Errorf("%s: got %d %.200s, want %d with %q", path, code, said, c.want, c.words)
				}
			}
		})
	}
}

func TestStrangersDoNotWearOutTheAPIServer(t *testing.T) {
	read := 0
	ours := authority(t)
	url := serve(t, &Guard{
		Authorities: func(context.Context) ([]byte, error) { read++; return ours[certs.KeyBundle], nil },
		On:          func(context.Context) (bool, error) { return true, nil },
	})
	forged := clientCertificate(t, authority(t), ClientName, time.Minute)
	for range 5 {
		ask(t, forged, http.MethodGet, url+DumpPath)
	}
	if read != 1 {
		t.Errorf("the authorities were read %d times, want once", read)
	}
}

func TestWhatIsDumpedIsTheFieldsType(t *testing.T) {
	ours := authority(t)
	good := clientCertificate(t, ours, ClientName, time.Minute)
	url := serve(t, &Guard{
		Authorities: func(context.Context) ([]byte, error) { return ours[certs.KeyBundle], nil },
		On:          func(context.Context) (bool, error) { return true, nil },
	})
	for _, path := range []string{StartPath, StopPath} {
		if code, said := ask(t, good, http.MethodGet, url+path); code != http.StatusOK || said != "" {
			t.Fatalf("%s: got %d %s", path, code, said)
		}
	}
	_, said := ask(t, good, http.MethodGet, url+DumpPath)
	result := virtv1.ProfilerResult{}
	if err := json.Unmarshal([]byte(said), &result); err != nil {
		t.Fatal(err)
	}
	if len(result.PprofData) != len(always)+1 || len(result.PprofData[cpuProfile]) == 0 {
		t.Errorf("got %d profiles", len(result.PprofData))
	}
}
