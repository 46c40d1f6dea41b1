package dataimportcron

import (
	"context"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	"github.com/google/go-containerregistry/pkg/v1/random"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-vm/slipway/internal/imageversion"
	"github.com/slipway-vm/slipway/internal/registries"
)

// anywhere polls servers of this machine too.
func anywhere() *sources {
	return &sources{allowed: func(netip.Addr) bool { return true }, bound: unhurried}
}

func ofHTTP(source cdiv1.DataVolumeSourceHTTP) *cdiv1.DataImportCron {
	cron := &cdiv1.DataImportCron{}
	cron.Spec.Template.Spec.Source = &cdiv1.DataVolumeSource{HTTP: &source}
	return cron
}

func TestAFilesVersionIsWhatItsServerSays(t *testing.T) {
	headers := map[string]http.Header{
		"/tag":      {"Etag": {`"a"`}, "Last-Modified": {"Mon, 02 Jan 2006 15:04:05 GMT"}},
		"/weak":     {"Etag": {`W/"a"`}},
		"/modified": {"Last-Modified": {"Mon, 02 Jan 2006 15:04:05 GMT"}, "Content-Range": {"bytes 0-0/100"}},
		"/longer":   {"Last-Modified": {"Mon, 02 Jan 2006 15:04:05 GMT"}, "Content-Range": {"bytes 0-0/101"}},
		"/silent":   {},
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		header, ok := headers[r.URL.Path]
		if !ok || r.Method == http.MethodHead || r.Header.Get("X-Mirror") == "" {
			w.WriteHeader(http.StatusForbidden)
			return
		}
		for key := range header {
			w.Header().Set(key, header.Get(key))
		}
		if header.Get("Content-Range") != "" {
			w.WriteHeader(http.StatusPartialContent)
		}
		_, _ = w.Write([]byte("x"))
	}))
	defer server.Close()
	seen := map[string]string{}
	for path := range headers {
		digest, err := anywhere().digest(t.Context(), ofHTTP(cdiv1.DataVolumeSourceHTTP{URL: server.URL + path, ExtraHeaders: []string{"X-Mirror: near"}}), registries.Settings{})
		if path == "/silent" {
			if err == nil || !strings.Contains(err.Error(), "give it a checksum") {
				t.Errorf("a server that says nothing: %v", err)
			}
			continue
		}
		if err != nil || !strings.HasPrefix(digest, "sha256:") || len(digest) != 71 {
			t.Fatalf("%s: %q, %v", path, digest, err)
		}
		if seen[digest] != "" {
			t.Errorf("%s and %s have one digest", path, seen[digest])
		}
		seen[digest] = path
	}
	if _, err := anywhere().digest(t.Context(), ofHTTP(cdiv1.DataVolumeSourceHTTP{URL: server.URL + "/none"}), registries.Settings{}); err == nil || !strings.Contains(err.Error(), "403") {
		t.Errorf("a refusal: %v", err)
	}
}

func TestAFileWithAChecksumIsNotAskedFor(t *testing.T) {
	sum := "sha256:" + strings.Repeat("ab", 32)
	for checksum, want := range map[string]string{sum: sum, strings.ToUpper(sum[:6]) + sum[6:]: sum, "md5:" + strings.Repeat("0", 32): imageversion.Digest("md5:" + strings.Repeat("0", 32))} {
		digest, err := anywhere().digest(t.Context(), ofHTTP(cdiv1.DataVolumeSourceHTTP{URL: "http://127.0.0.1:1/", Checksum: checksum}), registries.Settings{})
		if err != nil || digest != want {
			t.Errorf("%s: got %q, %v", checksum, digest, err)
		}
	}
}

func TestTheMachineItselfIsNotAsked(t *testing.T) {
	server := httptest.NewServer(http.NotFoundHandler())
	defer server.Close()
	guarded := &sources{allowed: public, bound: unhurried}
	u, err := url.Parse(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	for _, address := range []string{server.URL, "http://localhost:" + u.Port(), "http://[::1]:" + u.Port(), "http://169.254.169.254/latest", "http://[::ffff:127.0.0.1]:" + u.Port()} {
		_, err := guarded.digest(t.Context(), ofHTTP(cdiv1.DataVolumeSourceHTTP{URL: address}), registries.Settings{})
		if err == nil {
			t.Errorf("%s is asked", address)
			continue
		}
		withoutIPv6 := strings.Contains(address, "::1") && strings.Contains(err.Error(), "no connection")
		if !withoutIPv6 && !strings.Contains(err.Error(), errAddress.Error()) {
			t.Errorf("%s: %v", address, err)
		}
	}
	cron := &cdiv1.DataImportCron{}
	cron.Spec.Template.Spec.Source = &cdiv1.DataVolumeSource{Registry: &cdiv1.DataVolumeSourceRegistry{URL: new("docker://" + u.Host + "/disk:1")}}
	if _, err := guarded.digest(t.Context(), cron, registries.Settings{Insecure: []string{u.Host}}); err == nil || !strings.Contains(err.Error(), errAddress.Error()) {
		t.Errorf("a registry: %v", err)
	}
}

func TestAnImagesDigestIsItsRegistrys(t *testing.T) {
	server := httptest.NewServer(registry.New())
	defer server.Close()
	host := strings.TrimPrefix(server.URL, "http://")
	ref, err := name.ParseReference(host + "/images/debian:12")
	if err != nil {
		t.Fatal(err)
	}
	image, err := random.Image(64, 1)
	if err != nil {
		t.Fatal(err)
	}
	if err := remote.Write(ref, image); err != nil {
		t.Fatal(err)
	}
	want, err := image.Digest()
	if err != nil {
		t.Fatal(err)
	}
	cron := &cdiv1.DataImportCron{}
	from := &cdiv1.DataVolumeSourceRegistry{URL: new("docker://" + host + "/images/debian:12")}
	cron.Spec.Template.Spec.Source = &cdiv1.DataVolumeSource{Registry: from}
	digest, err := anywhere().digest(t.Context(), cron, registries.Settings{Insecure: []string{host}})
	if err != nil || digest != want.String() {
		t.Errorf("got %q, %v; want %s", digest, err, want)
	}
	if _, err := anywhere().digest(t.Context(), cron, registries.Settings{}); err == nil {
		t.Error("a registry without TLS was asked though nobody allowed it")
	}
	from.URL = new("docker://" + host + "/images/none:12")
	if _, err := anywhere().digest(t.Context(), cron, registries.Settings{Insecure: []string{host}}); err == nil || !strings.Contains(err.Error(), "it has no such image") {
		t.Errorf("an image that is not there: %v", err)
	}
}

func TestAnImagesDigestIsItsMirrorsFirst(t *testing.T) {
	conf := func(mirrors ...string) registries.Settings {
		text := "[[registry]]\nlocation = \"registry.invalid\"\nblocked = true\n"
		for _, mirror := range mirrors {
			text += "[[registry.mirror]]\nlocation = \"" + mirror + "\"\ninsecure = true\n"
		}
		return registries.Settings{Conf: text, Origin: "ConfigMap a/b"}
	}
	server, empty := httptest.NewServer(registry.New()), httptest.NewServer(registry.New())
	defer server.Close()
	defer empty.Close()
	host, bare := strings.TrimPrefix(server.URL, "http://"), strings.TrimPrefix(empty.URL, "http://")
	ref, err := name.ParseReference(host + "/mirror/debian:12")
	if err != nil {
		t.Fatal(err)
	}
	image, err := random.Image(64, 1)
	if err != nil {
		t.Fatal(err)
	}
	if err := remote.Write(ref, image); err != nil {
		t.Fatal(err)
	}
	want, err := image.Digest()
	if err != nil {
		t.Fatal(err)
	}
	cron := &cdiv1.DataImportCron{}
	cron.Spec.Template.Spec.Source = &cdiv1.DataVolumeSource{Registry: &cdiv1.DataVolumeSourceRegistry{URL: new("docker://registry.invalid/debian:12")}}
	digest, err := anywhere().digest(t.Context(), cron, conf("127.0.0.1:1", bare, host+"/mirror"))
	if err != nil || digest != want.String() {
		t.Errorf("got %q, %v; want %s", digest, err, want)
	}
	_, err = anywhere().digest(t.Context(), cron, conf("127.0.0.1:1", bare))
	if err == nil || !strings.Contains(err.Error(), bare+" for the image's digest: it has no such image; before that: asking registry 127.0.0.1:1") {
		t.Errorf("an image that no mirror has: %v", err)
	}
	silent := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }))
	defer silent.Close()
	for bound := 4 * time.Second; ; bound *= 2 { // half of it is the second mirror's, which may need more on a busy machine
		soon, stop := context.WithTimeout(t.Context(), bound)
		digest, err = anywhere().digest(soon, cron, conf(strings.TrimPrefix(silent.URL, "http://"), host+"/mirror"))
		stop()
		if err == nil && digest == want.String() {
			break
		}
		if bound > unhurried {
			t.Fatalf("after a mirror that says nothing: got %q, %v; want %s", digest, err, want)
		}
	}
	known := cron.DeepCopy()
	known.Annotations = map[string]string{AnnotationDesired: want.String()}
	digest, err = anywhere().digest(t.Context(), known, conf(bare, host+"/mirror"))
	if err != nil || digest != want.String() {
		t.Errorf("after a mirror that does not have it: got %q, %v; want %s", digest, err, want)
	}
	if digest, err := anywhere().digest(t.Context(), known, conf("127.0.0.1:1", host+"/mirror")); err == nil {
		t.Errorf("when one is known, the digest of a further mirror counts: %s", digest)
	}
	if _, err := anywhere().digest(t.Context(), cron, conf()); err == nil || !strings.Contains(err.Error(), "blocked in ConfigMap a/b") {
		t.Errorf("an image of a blocked registry: %v", err)
	}
	if _, err := (&sources{allowed: public, bound: unhurried}).digest(t.Context(), cron, conf(host+"/mirror")); err == nil || !strings.Contains(err.Error(), errAddress.Error()) {
		t.Errorf("a mirror on the machine itself: %v", err)
	}
}

// A registry is not the only one to say whom virt-controller asks: what it answers names others.
func TestNobodyIsAskedWhomARegistryNames(t *testing.T) {
	asked := make(chan string, 8)
	hidden := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { asked <- r.URL.Path }))
	defer hidden.Close()
	_, port, err := net.SplitHostPort(hidden.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	elsewhere := "http://localhost:" + port
	for name, answer := range map[string]http.HandlerFunc{
		"as the one that gives tokens": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("WWW-Authenticate", `Bearer realm="`+elsewhere+`/token",service="a"`)
			w.WriteHeader(http.StatusUnauthorized)
		},
		"as the one that has the image": func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path != "/v2/" {
				http.Redirect(w, r, elsewhere+r.URL.Path, http.StatusTemporaryRedirect)
			}
		},
	} {
		listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.2:0")
		if err != nil {
			t.Fatal(err)
		}
		server := httptest.NewUnstartedServer(answer)
		if err := server.Listener.Close(); err != nil {
			t.Fatal(err)
		}
		server.Listener = listener
		server.Start()
		host := listener.Addr().String()
		guarded := &sources{bound: unhurried, allowed: func(address netip.Addr) bool { return address == netip.MustParseAddr("127.0.0.2") }}
		cron := &cdiv1.DataImportCron{}
		cron.Spec.Template.Spec.Source = &cdiv1.DataVolumeSource{Registry: &cdiv1.DataVolumeSourceRegistry{URL: new("docker://" + host + "/disk:1")}}
		_, err = guarded.digest(t.Context(), cron, registries.Settings{Insecure: []string{host}})
		if err == nil || !strings.Contains(err.Error(), errAddress.Error()) {
			t.Errorf("%s: %v", name, err)
		}
		server.Close()
	}
	if len(asked) > 0 {
		t.Errorf("it is asked for %s", <-asked)
	}
}

// oneConfigMap is a reader of one ConfigMap, images/authorities.
type oneConfigMap struct {
	client.Reader
	data map[string]string
}

func (r oneConfigMap) Get(_ context.Context, key client.ObjectKey, into client.Object, _ ...client.GetOption) error {
	if key.String() != "images/authorities" {
		return apierrors.NewNotFound(schema.GroupResource{Resource: "configmaps"}, key.Name)
	}
	into.(*corev1.ConfigMap).Data = r.data
	return nil
}

func TestARegistryIsTrustedForTheAuthoritiesOfAConfigMap(t *testing.T) {
	server := httptest.NewUnstartedServer(registry.New())
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	server.StartTLS()
	defer server.Close()
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
	want, err := image.Digest()
	if err != nil {
		t.Fatal(err)
	}
	trusting := anywhere()
	trusting.live = oneConfigMap{data: map[string]string{
		"ours": "nothing", "ours.pem": string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})),
	}}
	for configMap, wantError := range map[string]string{"authorities": "", "": "certificate", "none": "ConfigMap none"} {
		cron := &cdiv1.DataImportCron{}
		cron.Namespace = "images"
		cron.Spec.Template.Spec.Source = &cdiv1.DataVolumeSource{Registry: &cdiv1.DataVolumeSourceRegistry{URL: new("docker://" + ref.Name()), CertConfigMap: &configMap}}
		digest, err := trusting.digest(t.Context(), cron, registries.Settings{})
		if wantError == "" && (err != nil || digest != want.String()) || wantError != "" && (err == nil || !strings.Contains(err.Error(), wantError)) {
			t.Errorf("ConfigMap %q: got %q, %v", configMap, digest, err)
		}
	}
}

// Users choose whom virt-controller asks, and must not read by it what they cannot read themselves.
func TestWhatAServerSaysIsNotTold(t *testing.T) {
	const secret = "the-password"
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasPrefix(r.URL.Path, "/malformed") {
			connection, _, err := w.(http.Hijacker).Hijack()
			if err == nil {
				_, _ = connection.Write([]byte(secret + "\r\n"))
				_ = connection.Close()
			}
			return
		}
		w.WriteHeader(http.StatusTeapot)
		_, _ = w.Write([]byte(`{"errors":[{"code":"` + secret + `","message":"` + secret + `"}]}`))
	}))
	defer server.Close()
	host := strings.TrimPrefix(server.URL, "http://")
	ofRegistry := &cdiv1.DataImportCron{}
	ofRegistry.Spec.Template.Spec.Source = &cdiv1.DataVolumeSource{Registry: &cdiv1.DataVolumeSourceRegistry{URL: new("docker://" + host + "/disk:1")}}
	for name, cron := range map[string]*cdiv1.DataImportCron{
		"a web server": ofHTTP(cdiv1.DataVolumeSourceHTTP{URL: server.URL}), "no web server": ofHTTP(cdiv1.DataVolumeSourceHTTP{URL: server.URL + "/malformed"}), "a registry": ofRegistry,
	} {
		if _, err := anywhere().digest(t.Context(), cron, registries.Settings{Insecure: []string{host}}); err == nil || strings.Contains(err.Error(), secret) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestAnImageIsImportedByItsDigest(t *testing.T) {
	for url, want := range map[string]string{
		"docker://quay.io/containerdisks/fedora:41":                         "docker://quay.io/containerdisks/fedora@sha256:0a",
		"docker://registry.local:5000/disk":                                 "docker://registry.local:5000/disk@sha256:0a",
		"docker://registry.local/disk:1@sha256:" + strings.Repeat("ff", 32): "docker://registry.local/disk@sha256:0a",
	} {
		if got, err := withDigest(url, "sha256:0a"); err != nil || got != want {
			t.Errorf("%s: got %q, %v; want %s", url, got, err, want)
		}
	}
	if _, err := withDigest("oci-archive://disk.tar", "sha256:0a"); err == nil {
		t.Error("a file has a digest of a registry")
	}
}

// What is told of a server that is not reached is the same at each try: another event for the same
// failure helps nobody.
func TestAFailureOfTheNetworkIsToldTheSameEachTime(t *testing.T) {
	lookup := func(port int) error {
		return &net.DNSError{Name: "quay.io", Server: "10.96.0.10:53", IsTimeout: true, Err: fmt.Sprintf("read udp 10.0.0.7:%d->10.96.0.10:53: i/o timeout", port)}
	}
	dial := func(last byte) error {
		to := &net.TCPAddr{IP: net.IPv4(192, 0, 2, last), Port: 443}
		return &net.OpError{Op: "dial", Net: "tcp", Addr: to, Err: errors.New("i/o timeout")}
	}
	for want, failures := range map[string][2]error{
		"no name server answers for quay.io in time":               {lookup(1), lookup(2)},
		"no name server knows quay.io":                             {&net.DNSError{Name: "quay.io", IsNotFound: true, Server: "a"}, &net.DNSError{Name: "quay.io", IsNotFound: true, Server: "b"}},
		"the name server does not answer for quay.io as it should": {&net.DNSError{Name: "quay.io", Err: "server misbehaving", Server: "a"}, &net.DNSError{Name: "quay.io", Err: "server misbehaving", Server: "b"}},
		"no connection to it: i/o timeout":                         {dial(1), dial(2)},
	} {
		for _, failure := range failures {
			if got := reached(&url.Error{Op: "Get", URL: "https://quay.io/v2/", Err: failure}).Error(); got != want {
				t.Errorf("got %q, want %q", got, want)
			}
		}
	}
}
