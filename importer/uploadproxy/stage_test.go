package uploadproxy_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/rsa"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/slipway-vm/slipway/importer"
	"github.com/slipway-vm/slipway/importer/target"
	"github.com/slipway-vm/slipway/importer/uploadproxy"
	"github.com/slipway-vm/slipway/importer/uploadserver"
	"github.com/slipway-vm/slipway/internal/certs"
	"github.com/slipway-vm/slipway/internal/digest"
	"github.com/slipway-vm/slipway/internal/transfer"
	"github.com/slipway-vm/slipway/internal/upload"
	"github.com/slipway-vm/slipway/tests/fixture/need"
)

// debian is the claim of most tests.
var debian = upload.Target{Namespace: "shop", Name: "debian"}

// stage is a proxy and the upload server of one claim, with TLS between and before them.
type stage struct {
	key       *rsa.PrivateKey
	proxy     *uploadproxy.Proxy
	front     *httptest.Server
	client    *http.Client
	disk      string // where the server writes
	ended     chan error
	messages  string // what the server writes for the controller
	authority map[string][]byte
	address   string // of the server
}

// known is trust that is given, not read from a cluster.
type known struct {
	keys []*rsa.PublicKey
	data map[string][]byte
	to   string
}

func (k *known) Keys(context.Context) ([]*rsa.PublicKey, error) { return k.keys, nil }

func (k *known) Transport(context.Context) (http.RoundTripper, error) {
	cert, err := tls.X509KeyPair(k.data[certs.KeyCert], k.data[certs.KeyKey])
	if err != nil {
		return nil, err
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(k.data[certs.KeyBundle])
	return &http.Transport{
		TLSClientConfig: &tls.Config{Certificates: []tls.Certificate{cert}, RootCAs: roots}, DisableKeepAlives: true,
		DialContext: func(ctx context.Context, network, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, network, k.to)
		},
	}, nil
}

// claims are those that wait for an upload; every other one does not exist.
type claims map[upload.Target]bool

func (c claims) AwaitReady(_ context.Context, claim upload.Target) (upload.Target, error) {
	if !c[claim] {
		return claim, fmt.Errorf("rejecting Upload Request for PVC %s that doesn't exist", claim.Name)
	}
	return claim, nil
}

func newStage(t *testing.T) *stage {
	t.Helper()
	s := &stage{ended: make(chan error, 1)}
	var err error
	s.key, err = rsa.GenerateKey(rand.Reader, 2048)
	must(t, err)
	s.authority, _, _, err = certs.RenewClient(nil, upload.ClientName, certs.DefaultLifetimes(), time.Now())
	must(t, err)
	s.startServer(t)
	s.proxy = &uploadproxy.Proxy{
		Claims: claims{debian: true}, Now: time.Now,
		Trust: &known{[]*rsa.PublicKey{&s.key.PublicKey}, s.authority, s.address},
	}
	s.front = httptest.NewTLSServer(s.proxy)
	t.Cleanup(s.front.Close)
	s.client = s.front.Client()
	return s
}

// startServer runs the upload server as its pod does.
func (s *stage) startServer(t *testing.T) {
	t.Helper()
	dir := t.TempDir()
	issued, err := certs.Issue(s.authority, []string{upload.ServerHost(debian.Namespace, debian.Name)}, time.Now())
	must(t, err)
	for name, data := range map[string][]byte{certs.KeyCert: issued.Cert, certs.KeyKey: issued.Key, certs.KeyBundle: issued.Bundle} {
		must(t, os.WriteFile(filepath.Join(dir, name), data, 0o600))
	}
	s.disk, s.messages = filepath.Join(dir, "disk.img"), filepath.Join(dir, "message")
	s.address = freeAddress(t)
	ctx, stop := context.WithCancel(context.Background())
	go func() {
		s.ended <- uploadserver.Run(ctx, uploadserver.Options{
			Import:  importer.Options{Target: target.Options{Path: s.disk, Size: 32 << 20}},
			Address: s.address, ProgressAddress: "localhost:0", Token: "progress", CertDir: dir, Client: upload.ClientName, TerminationLog: s.messages,
		})
	}()
	t.Cleanup(stop)
	for deadline := time.Now().Add(3 * time.Minute); ; {
		connection, err := net.Dial("tcp", s.address)
		if err == nil {
			connection.Close()
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("the server does not listen: %v", err)
		}
		<-time.After(20 * time.Millisecond)
	}
}

func freeAddress(t *testing.T) string {
	t.Helper()
	listener, err := net.Listen("tcp", "localhost:0")
	must(t, err)
	defer listener.Close()
	return listener.Addr().String()
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func (s *stage) token(t *testing.T, claim upload.Target) string {
	t.Helper()
	token, err := upload.Sign(s.key, claim, time.Now())
	must(t, err)
	return token
}

// send sends a request to the proxy and returns the answer.
func (s *stage) send(t *testing.T, method, path, token string, body io.Reader, header http.Header) (int, string, http.Header) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), method, s.front.URL+path, body)
	must(t, err)
	maps.Copy(request.Header, header)
	if token != "" {
		request.Header.Set("Authorization", "Bearer "+token)
	}
	response, err := s.client.Do(request)
	if err != nil {
		return 0, err.Error(), nil
	}
	defer response.Body.Close()
	said, err := io.ReadAll(response.Body)
	must(t, err)
	return response.StatusCode, string(said), response.Header
}

// wantDisk checks that the server has ended with a disk that begins with want.
func (s *stage) wantDisk(t *testing.T, want []byte, format string) {
	t.Helper()
	select {
	case err := <-s.ended:
		must(t, err)
	case <-time.After(3 * time.Minute):
		t.Fatal("the server does not end")
	}
	message, err := os.ReadFile(s.messages)
	must(t, err)
	result, err := transfer.Decode(string(message))
	must(t, err)
	disk, err := os.ReadFile(s.disk)
	must(t, err)
	whole := make([]byte, 32<<20)
	copy(whole, want)
	if !bytes.Equal(disk, whole) {
		t.Error("the disk is another one")
	}
	sum, err := digest.Of(t.Context(), bytes.NewReader(whole), int64(len(whole)), 2)
	must(t, err)
	if result.Digest != sum || result.Format != format || result.Reason != "" {
		t.Errorf("the result is %+v, want digest %s of format %s", result, sum, format)
	}
	if left, err := filepath.Glob(s.disk + ".*"); err != nil || len(left) > 0 {
		t.Errorf("left over: %v, %v", left, err)
	}
}

// newDisk is a disk with data, a hole and an odd end.
func newDisk() []byte {
	disk := make([]byte, 9<<20+3*512)
	_, _ = rand.Read(disk[:2<<20])
	_, _ = rand.Read(disk[len(disk)-512:])
	return disk
}

// converted returns the disk as program makes it.
func converted(t *testing.T, disk []byte, program, from string, args ...string) []byte {
	t.Helper()
	need.Program(t, program, from)
	dir := t.TempDir()
	raw, out := filepath.Join(dir, "raw"), filepath.Join(dir, "out")
	must(t, os.WriteFile(raw, disk, 0o600))
	if program == "qemu-img" {
		said, err := exec.Command(program, append(args, raw, out)...).CombinedOutput()
		if err != nil {
			t.Fatalf("%v: %s", err, said)
		}
	} else {
		packed, err := exec.Command(program, append(args, raw)...).Output()
		must(t, err)
		return packed
	}
	data, err := os.ReadFile(out)
	must(t, err)
	return data
}

var errNever = errors.New("the body was read")

// untouchable is a body that nobody may read.
type untouchable struct{ t *testing.T }

func (u untouchable) Read([]byte) (int, error) {
	u.t.Error("the body of a request without a good token was read")
	return 0, errNever
}

func (untouchable) Close() error { return nil }
