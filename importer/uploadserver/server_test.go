package uploadserver

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/slipway-vm/slipway/importer"
	"github.com/slipway-vm/slipway/importer/target"
	"github.com/slipway-vm/slipway/internal/transfer"
	"github.com/slipway-vm/slipway/internal/upload"
)

// trusted is the state of a connection from cdi-uploadproxy.
func trusted() *tls.ConnectionState {
	cert := &x509.Certificate{Subject: pkix.Name{CommonName: upload.ClientName}}
	return &tls.ConnectionState{PeerCertificates: []*x509.Certificate{cert}, VerifiedChains: [][]*x509.Certificate{{cert}}}
}

func newServer(t *testing.T) (*Server, string) {
	t.Helper()
	disk := filepath.Join(t.TempDir(), "disk.img")
	return New(importer.Options{Target: target.Options{Path: disk, Size: 4 << 20}}, upload.ClientName, importer.NewProgress(), func(transfer.Result) error { return nil }), disk
}

func (s *Server) answer(body io.Reader, size int64) *httptest.ResponseRecorder {
	request := httptest.NewRequest(http.MethodPost, "/v1beta1/upload", body)
	request.TLS, request.ContentLength = trusted(), size
	recorder := httptest.NewRecorder()
	s.ServeHTTP(recorder, request)
	return recorder
}

// One image at a time, and one in all: what is whole is never written over.
func TestOneImageIsTaken(t *testing.T) {
	s, disk := newServer(t)
	image := bytes.Repeat([]byte{7}, 1<<20)
	from, to := io.Pipe()
	first := make(chan *httptest.ResponseRecorder, 1)
	go func() { first <- s.answer(from, int64(len(image))) }()
	if _, err := to.Write(image[:512<<10]); err != nil { // half of it: the upload is under way
		t.Fatal(err)
	}
	if second := s.answer(bytes.NewReader(image), int64(len(image))); second.Code != http.StatusServiceUnavailable {
		t.Errorf("another one meanwhile: %d %s", second.Code, second.Body)
	}
	for deadline := time.Now().Add(3 * time.Minute); s.Progress.Now().Done == 0 && time.Now().Before(deadline); {
		<-time.After(10 * time.Millisecond) // what has come is counted after it was taken
	}
	if now := s.Progress.Now(); now.Done == 0 || now.Total != int64(len(image)) {
		t.Errorf("the progress is %+v", now)
	}
	if _, err := to.Write(image[512<<10:]); err != nil {
		t.Fatal(err)
	}
	to.Close()
	if answer := <-first; answer.Code != http.StatusOK {
		t.Fatalf("%d %s", answer.Code, answer.Body)
	}
	if third := s.answer(bytes.NewReader(make([]byte, 1<<20)), 1<<20); third.Code != http.StatusConflict {
		t.Errorf("another one after it: %d %s", third.Code, third.Body)
	}
	if result := <-s.Finished(); result.Digest == "" || result.Downloaded != 1<<20 {
		t.Errorf("%+v", result)
	}
	if written, err := os.ReadFile(disk); err != nil || !bytes.Equal(written[:1<<20], image) {
		t.Errorf("the disk is another one: %v", err)
	}
}

func TestABrokenUploadLeavesNothing(t *testing.T) {
	s, disk := newServer(t)
	answer := s.answer(strings.NewReader(strings.Repeat("\x07", 1<<20)), 2<<20) // half of what was said
	if answer.Code != http.StatusInternalServerError || !strings.Contains(answer.Body.String(), "send the image again") {
		t.Errorf("%d %s", answer.Code, answer.Body)
	}
	if left, err := filepath.Glob(filepath.Join(filepath.Dir(disk), "*")); err != nil || len(left) > 0 {
		t.Errorf("left over: %v, %v", left, err)
	}
	if now := s.Progress.Now(); now.Done != 0 || now.Total != 0 || now.Reason != transfer.ConnectionLost {
		t.Errorf("the progress of nothing is %+v", now)
	}
	if answer := s.answer(bytes.NewReader(make([]byte, 1<<20)), 1<<20); answer.Code != http.StatusOK {
		t.Errorf("the second time: %d %s", answer.Code, answer.Body)
	}
}

// A certificate that nobody has verified says nothing.
func TestAnUnverifiedCertificateIsNone(t *testing.T) {
	s, _ := newServer(t)
	request := httptest.NewRequest(http.MethodPost, "/v1beta1/upload", strings.NewReader("x"))
	request.TLS = trusted()
	request.TLS.VerifiedChains = nil
	recorder := httptest.NewRecorder()
	s.ServeHTTP(recorder, request)
	if recorder.Code != http.StatusUnauthorized {
		t.Errorf("%d %s", recorder.Code, recorder.Body)
	}
}
