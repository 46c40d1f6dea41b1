package dataimportcron

import (
	"context"
	"encoding/pem"
	"errors"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	"github.com/google/go-containerregistry/pkg/v1/random"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"

	"github.com/slipway-vm/slipway/controllers/cdiconfig"
	"github.com/slipway-vm/slipway/internal/imageversion"
	"github.com/slipway-vm/slipway/internal/registries"
	"github.com/slipway-vm/slipway/tests/fixture/forward"
)

// through polls as virt-controller does, by the proxies of set.
func through(t *testing.T, set cdiconfig.ImportProxy) *sources {
	t.Helper()
	return &sources{allowed: public, bound: unhurried, proxy: func(context.Context) (cdiconfig.ImportProxy, error) { return set, nil }}
}

func ofRegistry(address string) *cdiv1.DataImportCron {
	cron := &cdiv1.DataImportCron{}
	cron.Spec.Template.Spec.Source = &cdiv1.DataVolumeSource{Registry: &cdiv1.DataVolumeSourceRegistry{URL: &address}}
	return cron
}

// pushed puts an image into a registry and returns its digest.
func pushed(t *testing.T, server *httptest.Server) string {
	t.Helper()
	ref, err := name.ParseReference(server.Listener.Addr().String() + "/debian:12")
	if err != nil {
		t.Fatal(err)
	}
	image, err := random.Image(64, 1)
	if err != nil {
		t.Fatal(err)
	}
	if err := remote.Write(ref, image, remote.WithTransport(server.Client().Transport)); err != nil {
		t.Fatal(err)
	}
	digest, err := image.Digest()
	if err != nil {
		t.Fatal(err)
	}
	return digest.String()
}

// The servers have names that only the proxy knows; and the proxy is on this machine, where nothing else may be asked.
func TestPollsGoByTheProxy(t *testing.T) {
	silent := log.New(io.Discard, "", 0)
	hello := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("Etag", `"1"`) })
	files, secured := httptest.NewServer(hello), httptest.NewTLSServer(hello)
	defer files.Close()
	defer secured.Close()
	images, lax := httptest.NewUnstartedServer(registry.New(registry.Logger(silent))), httptest.NewServer(registry.New(registry.Logger(silent)))
	images.StartTLS()
	defer images.Close()
	defer lax.Close()
	version := imageversion.Digest(`etag "1"`)
	login := url.UserPassword("importer", "pa55/word")
	servers := map[string]string{
		"files.example.com:80": files.Listener.Addr().String(), "files.example.com:443": secured.Listener.Addr().String(),
		"registry.example.com:443": images.Listener.Addr().String(), "lax.example.com:80": lax.Listener.Addr().String(),
	}
	trusted := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: secured.Certificate().Raw})
	for name, c := range map[string]struct {
		cron           *cdiv1.DataImportCron
		want           string
		connects, gets bool
		start          func(testing.TB, *url.Userinfo, map[string]string) *forward.Proxy
	}{
		"http":                           {ofHTTP(cdiv1.DataVolumeSourceHTTP{URL: "http://files.example.com/disk"}), version, false, true, forward.Start},
		"https":                          {ofHTTP(cdiv1.DataVolumeSourceHTTP{URL: "https://files.example.com/disk"}), version, true, false, forward.Start},
		"https with any certificate":     {ofHTTP(cdiv1.DataVolumeSourceHTTP{URL: "https://files.example.com/disk", InsecureSkipVerify: new(true)}), version, true, false, forward.StartTLS},
		"https, by a proxy with TLS":     {ofHTTP(cdiv1.DataVolumeSourceHTTP{URL: "https://files.example.com/disk"}), version, true, false, forward.StartTLS},
		"http, by a proxy with TLS":      {ofHTTP(cdiv1.DataVolumeSourceHTTP{URL: "http://files.example.com/disk"}), version, false, true, forward.StartTLS},
		"a registry":                     {ofRegistry("docker://registry.example.com/debian:12"), pushed(t, images), true, false, forward.Start},
		"a registry, by a proxy of TLS":  {ofRegistry("docker://registry.example.com/debian:12"), "", true, false, forward.StartTLS},
		"a registry that has no TLS too": {ofRegistry("docker://lax.example.com/debian:12"), pushed(t, lax), true, true, forward.Start},
	} {
		t.Run(name, func(t *testing.T) {
			by := c.start(t, login, servers)
			set := cdiconfig.ImportProxy{HTTP: by.Address(login), HTTPS: by.Address(login), Authorities: trusted}
			got, err := through(t, set).digest(t.Context(), c.cron, registries.Settings{Insecure: []string{"lax.example.com"}})
			if err != nil || c.want != "" && got != c.want {
				t.Errorf("got %q, %v; want %q", got, err, c.want)
			}
			if connects, gets := by.Connects.Load(), by.Gets.Load(); connects > 0 != c.connects || gets > 0 != c.gets {
				t.Errorf("the proxy was asked for %d tunnels and %d files", connects, gets)
			}
		})
	}
}

func TestWhatTheProxyOfPollsDoesIsSaid(t *testing.T) {
	login, wrong := url.UserPassword("importer", "pa55word"), url.UserPassword("importer", "of-yesterday")
	by, secured, gone := forward.Start(t, login, nil), forward.StartTLS(t, login, nil), forward.Start(t, login, nil)
	gone.Close()
	by.Words = "login first"
	plain, tunnel := ofHTTP(cdiv1.DataVolumeSourceHTTP{URL: "http://files.example.com/disk"}), ofHTTP(cdiv1.DataVolumeSourceHTTP{URL: "https://files.example.com/disk"})
	lax := ofHTTP(cdiv1.DataVolumeSourceHTTP{URL: "https://files.example.com/disk", InsecureSkipVerify: new(true)})
	for name, c := range map[string]struct {
		cron    *cdiv1.DataImportCron
		address string
		want    string
	}{
		"another password":                 {plain, by.Address(wrong), errProxyLogin.Error()},
		"another password for a tunnel":    {tunnel, by.Address(wrong), "the proxy of imports answers 407"},
		"another password for a registry":  {ofRegistry("docker://registry.example.com/a:1"), by.Address(wrong), "the proxy of imports answers 407"},
		"a server that it does not find":   {tunnel, by.Address(login), "the proxy of imports answers 502"},
		"it is gone":                       {plain, gone.Address(login), "the proxy of imports is not reached"},
		"it is gone for a registry":        {ofRegistry("docker://registry.example.com/a:1"), gone.Address(login), "the proxy of imports is not reached"},
		"it has a stranger's certificate":  {plain, secured.Address(wrong), "certificate"},
		"it has one, and any would do":     {lax, secured.Address(wrong), "certificate"},
		"the cloud's own address":          {ofHTTP(cdiv1.DataVolumeSourceHTTP{URL: "http://169.254.169.254/latest"}), by.Address(login), errAddress.Error()},
		"that address, to the letter":      {ofHTTP(cdiv1.DataVolumeSourceHTTP{URL: "http://169.254.169.254./latest"}), by.Address(login), errAddress.Error()},
		"that address in other numbers":    {ofHTTP(cdiv1.DataVolumeSourceHTTP{URL: "http://0xa9.254.0xa9fe/latest"}), by.Address(login), errAddress.Error()},
		"an address of the link's":         {ofRegistry("docker://169.254.1.1:5000/a:1"), by.Address(login), errAddress.Error()},
		"this machine, which has no proxy": {ofHTTP(cdiv1.DataVolumeSourceHTTP{URL: "http://127.0.0.1:8080/disk"}), by.Address(login), errAddress.Error()},
		"a registry on this machine":       {ofRegistry("docker://127.0.0.1:5000/a:1"), by.Address(login), errAddress.Error()},
	} {
		t.Run(name, func(t *testing.T) {
			set := cdiconfig.ImportProxy{HTTP: c.address, HTTPS: c.address}
			_, err := through(t, set).digest(t.Context(), c.cron, registries.Settings{})
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Fatalf("got %v, want %q", err, c.want)
			}
			if strings.Contains(err.Error(), "pa55word") || strings.Contains(err.Error(), "of-yesterday") {
				t.Errorf("the error has the password: %v", err)
			}
		})
	}
	if secured.Refused.Load() > 0 {
		t.Error("a proxy with a stranger's certificate got a password")
	}
	byTenant := through(t, cdiconfig.ImportProxy{HTTPS: secured.Address(wrong)})
	byTenant.live = oneConfigMap{data: map[string]string{"ca.pem": string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: secured.Certificate().Raw}))}}
	trusting := ofHTTP(cdiv1.DataVolumeSourceHTTP{URL: "https://files.example.com/disk", CertConfigMap: "authorities"})
	trusting.Namespace = "images"
	_, err := byTenant.digest(t.Context(), trusting, registries.Settings{})
	if err == nil || !strings.Contains(err.Error(), "the proxy of imports is not reached: tls") || secured.Refused.Load() > 0 {
		t.Errorf("whom a template trusts is trusted as the proxy: %v", err)
	}
	missing := errors.New("ConfigMap a/b does not exist")
	for _, cron := range []*cdiv1.DataImportCron{plain, ofRegistry("docker://registry.example.com/a:1")} {
		if _, err := through(t, cdiconfig.ImportProxy{Fault: missing}).digest(t.Context(), cron, registries.Settings{}); !errors.Is(err, missing) {
			t.Errorf("authorities that are missing: %v", err)
		}
	}
}

// Each registry where an image is looked for is reached in its own way.
func TestMirrorsAreReachedByTheProxyUnlessTheyAreNear(t *testing.T) {
	silent := registry.Logger(log.New(io.Discard, "", 0))
	far, near := httptest.NewServer(registry.New(silent)), httptest.NewServer(registry.New(silent))
	defer far.Close()
	defer near.Close()
	want := pushed(t, near)
	by := forward.Start(t, nil, map[string]string{"far.example.com:80": far.Listener.Addr().String()})
	polls := through(t, cdiconfig.ImportProxy{HTTP: by.Address(nil), HTTPS: by.Address(nil)})
	polls.allowed = func(netip.Addr) bool { return true }
	settings := registries.Settings{Origin: "ConfigMap a/b", Conf: "[[registry]]\nlocation = \"registry.example.com\"\n" +
		"[[registry.mirror]]\nlocation = \"far.example.com\"\ninsecure = true\n" +
		"[[registry.mirror]]\nlocation = \"" + near.Listener.Addr().String() + "\"\ninsecure = true\n"}
	cron := ofRegistry("docker://registry.example.com/debian:12")
	if got, err := polls.digest(t.Context(), cron, settings); err != nil || got != want {
		t.Errorf("after a mirror that does not have it: got %q, %v; want %s", got, err, want)
	}
	asked := by.Gets.Load()
	if asked == 0 {
		t.Error("the far mirror is not asked by the proxy")
	}
	want = pushed(t, far)
	if got, err := polls.digest(t.Context(), cron, settings); err != nil || got != want || by.Gets.Load() == asked {
		t.Errorf("of a mirror by the proxy: got %q, %v; want %s", got, err, want)
	}
	by.Close()
	cron.Annotations = map[string]string{AnnotationDesired: want}
	_, err := polls.digest(t.Context(), cron, settings)
	if err == nil || !strings.Contains(err.Error(), "asking registry far.example.com for the image's digest: the proxy of imports is not reached") {
		t.Errorf("a mirror by a proxy that is gone: %v", err)
	}
}
