package exportproxy

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/rand"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr/funcr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	exportv1 "kubevirt.io/api/export/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/slipway-vm/slipway/importer/exportserver"
	"github.com/slipway-vm/slipway/internal/certs"
	"github.com/slipway-vm/slipway/internal/vmexport"
)

const (
	token = "a-token-of-the-user"
	at    = "/api/export.kubevirt.io/v1/namespaces/shop/virtualmachineexports/web"
)

// stage is a proxy, and behind it the server of the export shop/web, which has a disk and a folder of files.
type stage struct {
	t       *testing.T
	disk    []byte
	exports exports
	front   *httptest.Server
	// behind is where every server is, whatever it is called.
	behind *httptest.Server
	asked  []string // what was dialled
	logged strings.Builder
}

// exports are those that there are; an error in the place of all.
type exports struct {
	known map[client.ObjectKey]*exportv1.VirtualMachineExport
	err   error
}

func (e *exports) Get(_ context.Context, key client.ObjectKey, into client.Object, _ ...client.GetOption) error {
	if e.err != nil {
		return e.err
	}
	export := e.known[key]
	if export == nil {
		return apierrors.NewNotFound(schema.GroupResource{Resource: "virtualmachineexports"}, key.Name)
	}
	export.DeepCopyInto(into.(*exportv1.VirtualMachineExport))
	return nil
}

// newStage has handler in the place of the export's server, unless that is nil.
func newStage(t *testing.T, handler http.Handler) *stage {
	t.Helper()
	s := &stage{t: t, disk: make([]byte, 3<<20+5)}
	_, _ = rand.Read(s.disk)
	if handler == nil {
		handler = s.server()
	}
	issued, err := certs.Alone([]string{vmexport.Host("shop", "web")}, time.Hour, time.Now())
	s.must(err)
	pair, err := tls.X509KeyPair(issued.Cert, issued.Key)
	s.must(err)
	s.behind = httptest.NewUnstartedServer(handler)
	s.behind.TLS = &tls.Config{Certificates: []tls.Certificate{pair}}
	s.behind.StartTLS()
	t.Cleanup(s.behind.Close)
	s.exports.known = map[client.ObjectKey]*exportv1.VirtualMachineExport{
		{Namespace: "shop", Name: "web"}:  ready(string(issued.Bundle)),
		{Namespace: "shop", Name: "late"}: {Status: &exportv1.VirtualMachineExportStatus{Phase: exportv1.Pending}},
		{Namespace: "shop", Name: "new"}:  {},
		{Namespace: "shop", Name: "else"}: ready(string(issued.Bundle)), // whose server has another's certificate
		{Namespace: "shop", Name: "none"}: ready("no certificate"),
	}
	s.front = httptest.NewUnstartedServer(&Proxy{Exports: &s.exports, Dial: func(ctx context.Context, network, address string) (net.Conn, error) {
		s.asked = append(s.asked, address)
		return (&net.Dialer{}).DialContext(ctx, network, s.behind.Listener.Addr().String())
	}})
	logger := funcr.New(func(_, line string) { _, _ = s.logged.WriteString(line + "\n") }, funcr.Options{Verbosity: 9}) // one request goes on at a time
	s.front.Config.BaseContext = func(net.Listener) context.Context { return log.IntoContext(t.Context(), logger) }
	s.front.StartTLS()
	t.Cleanup(s.front.Close)
	return s
}

func ready(authority string) *exportv1.VirtualMachineExport {
	return &exportv1.VirtualMachineExport{Status: &exportv1.VirtualMachineExportStatus{
		Phase: exportv1.Ready, Links: &exportv1.VirtualMachineExportLinks{Internal: &exportv1.VirtualMachineExportLink{Cert: authority}},
	}}
}

// server is a true one of an export.
func (s *stage) server() http.Handler {
	dir := s.t.TempDir()
	for name, data := range map[string][]byte{
		"root/disk.img": s.disk, "dumps/deep/a b.txt": []byte("a file"), "token": []byte(token),
		"manifest.json": []byte(`{"apiVersion":"v1","kind":"List","items":[{"apiVersion":"kubevirt.io/v1","kind":"VirtualMachine","spec":{"dataVolumeTemplates":[` +
			`{"spec":{"source":{"http":{"url":"` + vmexport.URL(vmexport.InternalBase("shop", "web"), "root", exportv1.KubeVirtGz) + `"}}}}]}}]}`),
	} {
		s.must(os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o700))
		s.must(os.WriteFile(filepath.Join(dir, name), data, 0o600))
	}
	return exportserver.New(exportserver.Volumes{
		Disks: map[string]string{"root": filepath.Join(dir, "root")}, Files: map[string]string{"dumps": filepath.Join(dir, "dumps")},
		Manifest: filepath.Join(dir, "manifest.json"), HeaderSecret: "header-secret-web",
	}, filepath.Join(dir, "token"))
}

func (s *stage) must(err error) {
	s.t.Helper()
	if err != nil {
		s.t.Fatal(err)
	}
}

// ask sends a request with the token, and headers "name: value". The error is of a body that breaks off.
func (s *stage) ask(method, path string, headers ...string) (*http.Response, []byte, error) {
	s.t.Helper()
	request, err := http.NewRequestWithContext(s.t.Context(), method, s.front.URL+path, http.NoBody)
	s.must(err)
	request.Header.Set(vmexport.Token, token)
	for _, header := range headers {
		name, value, _ := strings.Cut(header, ": ")
		request.Header.Set(name, value)
	}
	one := s.front.Client()
	one.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	response, err := one.Do(request)
	s.must(err)
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	return response, body, err
}

func TestVolumesGoThrough(t *testing.T) {
	s := newStage(t, nil)
	response, body, err := s.ask("GET", at+"/volumes/root/disk.img")
	if err != nil || response.StatusCode != http.StatusOK || !bytes.Equal(body, s.disk) || response.ContentLength != int64(len(s.disk)) {
		t.Errorf("%v, %s, %d bytes", err, response.Status, len(body))
	}
	tag := response.Header.Get("ETag")
	response, body, err = s.ask("GET", strings.Replace(at, "/v1/", "/v1alpha1/", 1)+"/volumes/root/disk.img?"+vmexport.Token+"="+token, vmexport.Token+": ",
		"Range: bytes=1000000-", "If-Range: "+tag)
	if err != nil || response.StatusCode != http.StatusPartialContent || !bytes.Equal(body, s.disk[1_000_000:]) {
		t.Errorf("a range, with the token in the query: %v, %s, %d bytes", err, response.Status, len(body))
	}
	if logged := s.logged.String(); !strings.Contains(logged, "Handing a request on") || strings.Contains(logged, token) {
		t.Errorf("logged is\n%s", logged)
	}
	if response, _, _ := s.ask("GET", at+"/volumes/root/disk.img", "Range: bytes=9000000-"); response.StatusCode != http.StatusRequestedRangeNotSatisfiable ||
		response.Header.Get("Content-Range") != fmt.Sprintf("bytes */%d", len(s.disk)) {
		t.Errorf("a range that is not: %s, %v", response.Status, response.Header)
	}
	response, body, err = s.ask("GET", at+"/volumes/root/disk.img.gz")
	s.must(err)
	zip, err := gzip.NewReader(bytes.NewReader(body))
	s.must(err)
	if disk, err := io.ReadAll(zip); err != nil || !bytes.Equal(disk, s.disk) {
		t.Errorf("packed: %s, %v, %d bytes", response.Status, err, len(disk))
	}
	if response, body, _ := s.ask("HEAD", at+"/volumes/root/disk.img"); response.ContentLength != int64(len(s.disk)) || len(body) > 0 {
		t.Errorf("HEAD: %d, %d bytes", response.ContentLength, len(body))
	}
	if response, body, _ := s.ask("GET", at+"/volumes/dumps/dir/deep/a%20b.txt"); string(body) != "a file" || !strings.Contains(response.Header.Get("Content-Security-Policy"), "sandbox") {
		t.Errorf("a file: %s %q %v", response.Status, body, response.Header)
	}
	response, _, _ = s.ask("GET", at+"/volumes/dumps/dir?a=b")
	if want := at + "/volumes/dumps/dir/?a=b"; response.StatusCode != http.StatusMovedPermanently || response.Header.Get("Location") != want {
		t.Errorf("a folder: %s to %q, want %q", response.Status, response.Header.Get("Location"), want)
	}
	for _, path := range []string{"/volumes/root/disk.img", "/volumes/none/disk.img", vmexport.PathExternalManifest} {
		if response, body, _ := s.ask("GET", at+path, vmexport.Token+": another"); response.StatusCode != http.StatusUnauthorized || !strings.Contains(string(body), vmexport.Token) {
			t.Errorf("%s with another token: %s %s", path, response.Status, body)
		}
	}
	for _, address := range s.asked {
		if address != "virt-export-web.shop.svc:443" {
			t.Errorf("asked %s", address)
		}
	}
}

func TestWhatLeadsToNoServerIsRefused(t *testing.T) {
	s := newStage(t, nil)
	for _, c := range []struct {
		method, path string
		code         int
		says         string
	}{
		{"GET", vmexport.PathHealth, http.StatusOK, "OK"},
		{"GET", "/", http.StatusBadRequest, "status.links.external"},
		{"GET", "/volumes/root/disk.img", http.StatusBadRequest, "status.links.external"},
		{"GET", "/api/export.kubevirt.io/v2" + at[len("/api/export.kubevirt.io/v1"):] + "/volumes/root/disk.img", http.StatusBadRequest, "status.links.external"},
		{"GET", at + "/", http.StatusNotFound, "no export has that"},
		{"GET", at + vmexport.PathHealth, http.StatusNotFound, "no export has that"},
		{"GET", at + "/volumes/../internal/manifests/secret", http.StatusNotFound, "no export has that"},
		{"GET", at + "/volumes/root/metrics", http.StatusNotFound, "no export has that"},
		{"POST", at + "/volumes/root/disk.img", http.StatusMethodNotAllowed, "use GET or HEAD"},
		{"GET", strings.Replace(at, "/web", "/another", 1) + "/volumes/root/disk.img", http.StatusNotFound, "there is no VirtualMachineExport shop/another"},
		{"GET", strings.Replace(at, "shop", "sh%6fp", 1) + "/volumes/root/disk.img", http.StatusNotFound, "there is no"},
		{"GET", strings.Replace(at, "/web", "/late", 1) + "/volumes/root/disk.img", http.StatusServiceUnavailable, "is not ready"},
		{"GET", strings.Replace(at, "/web", "/new", 1) + "/volumes/root/disk.img", http.StatusServiceUnavailable, "is not ready"},
		{"GET", strings.Replace(at, "/web", "/none", 1) + "/volumes/root/disk.img", http.StatusServiceUnavailable, "does not say by what"},
		{"GET", strings.Replace(at, "/web", "/else", 1) + "/volumes/root/disk.img", http.StatusBadGateway, "look at pod virt-export-else"},
	} {
		if response, body, _ := s.ask(c.method, c.path); response.StatusCode != c.code || !strings.Contains(string(body), c.says) {
			t.Errorf("%s %s: %s %s, want %d %s", c.method, c.path, response.Status, body, c.code, c.says)
		}
	}
	if response, _, _ := s.ask("POST", at+"/volumes/root/disk.img"); response.Header.Get("Allow") != "GET, HEAD" {
		t.Errorf("allowed is %q", response.Header.Get("Allow"))
	}
	if len(s.asked) != 1 || s.asked[0] != "virt-export-else.shop.svc:443" {
		t.Errorf("asked were %v", s.asked)
	}
	s.exports.err = errors.New("the cache is away")
	if response, body, _ := s.ask("GET", at+"/volumes/root/disk.img"); response.StatusCode != http.StatusInternalServerError || strings.Contains(string(body), "away") {
		t.Errorf("without exports: %s %s", response.Status, body)
	}
}
