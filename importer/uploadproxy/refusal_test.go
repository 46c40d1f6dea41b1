package uploadproxy_test

import (
	"bufio"
	"context"
	"crypto/rsa"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/slipway-vm/slipway/internal/upload"
)

// keyless is trust of a proxy that has not heard of any key yet.
type keyless struct{ *known }

func (keyless) Keys(context.Context) ([]*rsa.PublicKey, error) {
	return nil, errors.New("the ConfigMap is not there")
}

// That a token cannot be judged says nothing of the token: it may be shown again.
func TestAProxyWithoutKeysCallsNoTokenBad(t *testing.T) {
	s := newStage(t)
	s.proxy.Trust = keyless{}
	if code, said, _ := s.send(t, http.MethodPost, "/v1beta1/upload", s.token(t, debian), strings.NewReader("x"), nil); code != http.StatusServiceUnavailable || !strings.Contains(said, "try again soon") {
		t.Errorf("%d %s", code, said)
	}
}

// Who may send, but not now, and is sending already, reads why: his connection is not cut below him.
func TestWhoSendsTooEarlyReadsWhy(t *testing.T) {
	s := newStage(t)
	config := s.client.Transport.(*http.Transport).TLSClientConfig.Clone()
	connection, err := (&tls.Dialer{Config: config}).DialContext(t.Context(), "tcp", s.front.Listener.Addr().String())
	must(t, err)
	defer connection.Close()
	const size = 64 << 20 // more than the buffers on its way hold
	_, err = fmt.Fprintf(connection, "POST /v1beta1/upload HTTP/1.1\r\nHost: example.com\r\nAuthorization: Bearer %s\r\nContent-Length: %d\r\n\r\n",
		s.token(t, upload.Target{Namespace: "shop", Name: "other"}), size)
	must(t, err)
	if _, err := io.Copy(connection, io.LimitReader(zeros{}, size)); err != nil {
		t.Fatalf("it is cut: %v", err)
	}
	answer, err := http.ReadResponse(bufio.NewReader(connection), nil)
	must(t, err)
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusServiceUnavailable {
		t.Errorf("%s", answer.Status)
	}
}

// zeros has no end.
type zeros struct{}

func (zeros) Read(p []byte) (int, error) { return len(p), nil }
