//go:build integration

package api

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"testing"
	"time"

	"github.com/gorilla/websocket"
	"golang.org/x/sys/unix"
	v1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// guestCID is the address of the guest whose programs listen on sockets of the file system, by port:
// what these tests run on need not have VSOCK.
const guestCID = 1 << 31

func (w *world) dialVSOCK(ctx context.Context, cid, port uint32) (net.Conn, error) {
	if cid != guestCID {
		return nil, fmt.Errorf("connecting with %d:%d: %w", cid, port, unix.ENODEV)
	}
	if port == 9 {
		return nil, fmt.Errorf("connecting with %d:%d: %w", cid, port, unix.ECONNRESET)
	}
	var dialer net.Dialer
	return dialer.DialContext(ctx, "unix", w.program(port))
}

// program is where the program listens that stands for one in a guest.
func (w *world) program(port uint32) string { return filepath.Join(w.root, fmt.Sprint("port-", port)) }

// echoes serves all who come to listener.
func echoes(listener net.Listener) {
	for {
		peer, err := listener.Accept()
		if err != nil {
			return
		}
		go func() {
			_, _ = io.Copy(peer, peer)
			_ = peer.Close()
		}()
	}
}

// portsOfGuests connects with programs of a guest, in the clear and by TLS.
func (w *world) portsOfGuests(t *testing.T) {
	w.refused(t, http.MethodGet, vmiPath("x", "vsock?port=22"), w.token, "", 400, "VSOCK is not attached.")
	vmi := &v1.VirtualMachineInstance{}
	change := func(edit func()) {
		t.Helper()
		must(t, w.client.Get(t.Context(), client.ObjectKey{Namespace: "default", Name: "x"}, vmi))
		edit()
		must(t, w.client.Update(t.Context(), vmi))
	}
	change(func() { vmi.Spec.Domain.Devices.AutoattachVSOCK = new(true) })
	w.refused(t, http.MethodGet, vmiPath("x", "vsock?port=22"), w.token, "", 409, "VSOCKCID")
	change(func() { vmi.Status.VSOCKCID = new(uint32(guestCID)) })
	w.refused(t, http.MethodGet, vmiPath("x", "vsock?port=22"), w.token, "", 400, "websocket")
	w.refused(t, http.MethodGet, vmiPath("x", "vsock"), w.token, "", 400, "port")
	w.refused(t, http.MethodGet, vmiPath("x", "vsock?port=4294967295"), w.token, "", 400, "port")
	w.refused(t, http.MethodGet, vmiPath("x", "vsock?port=22&tls=perhaps"), w.token, "", 400, "tls")
	if code := w.unopened(t, "vsock?port=9"); code != http.StatusConflict {
		t.Errorf("a port that nothing listens on is answered with %d", code)
	}

	plain, err := net.Listen("unix", w.program(22))
	must(t, err)
	defer plain.Close()
	go echoes(plain)
	one, two := w.open(t, vmiPath("x", "vsock?port=22")), w.open(t, vmiPath("x", "vsock?port=22&tls=false"))
	for _, socket := range []*websocket.Conn{one, two} {
		must(t, socket.WriteMessage(websocket.BinaryMessage, []byte("hello")))
		hear(t, socket, "hello")
		must(t, socket.Close())
	}
	w.encryptedPort(t)

	change(func() { vmi.Status.VSOCKCID = new(uint32(7)) })
	if code := w.unopened(t, "vsock?port=22"); code != http.StatusInternalServerError {
		t.Errorf("a guest that is not there is answered with %d", code)
	}
}

// encryptedPort is of a program that lets in who shows the certificate on the Node.
func (w *world) encryptedPort(t *testing.T) {
	of, err := newIdentity(time.Now())
	must(t, err)
	trusted := x509.NewCertPool()
	trusted.AppendCertsFromPEM(w.server.Certificate())
	shown := make(chan error, 1)
	listener, err := net.Listen("unix", w.program(443))
	must(t, err)
	secure := tls.NewListener(listener, &tls.Config{
		Certificates: []tls.Certificate{of}, ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: trusted, MinVersion: tls.VersionTLS13,
		VerifyConnection: func(state tls.ConnectionState) error {
			if len(state.VerifiedChains) == 0 {
				shown <- errors.New("nothing was shown")
			} else {
				shown <- nil
			}
			return nil
		},
	})
	defer secure.Close()
	go echoes(secure)
	socket := w.open(t, vmiPath("x", "vsock?port=443&tls=true"))
	must(t, socket.WriteMessage(websocket.BinaryMessage, []byte("secret")))
	hear(t, socket, "secret")
	must(t, <-shown)
	must(t, socket.Close())
	if code := w.unopened(t, "vsock?port=22&tls=true"); code != http.StatusInternalServerError {
		t.Errorf("a program that speaks no TLS is answered with %d", code)
	}
}

// unopened asks for a websocket that there will be none of, and returns the code of the answer.
func (w *world) unopened(t *testing.T, verb string) int {
	t.Helper()
	socket, code, _, err := w.dial(t, vmiPath("x", verb))
	if err == nil {
		_ = socket.Close()
		t.Fatalf("%s was opened", verb)
	}
	if code == 0 {
		t.Fatal(err)
	}
	return code
}
