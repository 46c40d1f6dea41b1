package uploadserver

import (
	"bytes"
	"context"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/slipway-vm/slipway/internal/certs"
	"github.com/slipway-vm/slipway/internal/upload"
)

// A server that is told to go while it says farewell has gone before it is killed, with what it has made.
func TestAServerThatIsThroughGoesInTime(t *testing.T) {
	authority, _, _, err := certs.RenewClient(nil, upload.ClientName, certs.DefaultLifetimes(), time.Now())
	if err != nil {
		t.Fatal(err)
	}
	issued, err := certs.Issue(authority, []string{"localhost"}, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for name, data := range map[string][]byte{certs.KeyCert: issued.Cert, certs.KeyKey: issued.Key, certs.KeyBundle: issued.Bundle} {
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "localhost:0")
	if err != nil {
		t.Fatal(err)
	}
	address := listener.Addr().String()
	if err := listener.Close(); err != nil {
		t.Fatal(err)
	}
	s, _ := newServer(t)
	s.farewell = time.Hour // a sender who says nothing would be waited for
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	ended := make(chan error, 1)
	go func() {
		result, err := serve(ctx, s, Options{Address: address, CertDir: dir})
		if err == nil && result.Digest == "" {
			err = context.Canceled
		}
		ended <- err
	}()
	var silent net.Conn // somebody who has not asked for anything yet
	for deadline := time.Now().Add(3 * time.Minute); silent == nil; <-time.After(10 * time.Millisecond) {
		if silent, err = (&net.Dialer{}).DialContext(ctx, "tcp", address); err != nil && time.Now().After(deadline) {
			t.Fatalf("the server does not listen: %v", err)
		}
	}
	defer silent.Close()
	data := image()
	if answer := s.answer(bytes.NewReader(data), int64(len(data))); answer.Code != http.StatusOK {
		t.Fatalf("%d %s", answer.Code, answer.Body)
	}
	stop()
	select {
	case err := <-ended:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(3 * time.Minute): // it has leaveWithin; a busy machine takes its time
		t.Error("it does not go")
	}
	if leaveWithin+hasty >= 5*time.Second {
		t.Error("it is killed before it has gone")
	}
}
