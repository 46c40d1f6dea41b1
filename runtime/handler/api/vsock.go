package api

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strconv"

	"github.com/gorilla/websocket"
	"golang.org/x/sys/unix"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/slipway-vm/slipway/internal/metric"
)

// DialVSOCK connects with a port of the guest that has the address cid.
type DialVSOCK func(ctx context.Context, cid, port uint32) (net.Conn, error)

// vsock joins a client with a port of the guest, on which a program there listens. There can be any
// number of them.
func (s *Server) vsock(w http.ResponseWriter, r *http.Request, guest guest) error {
	if attached := guest.vmi.Spec.Domain.Devices.AutoattachVSOCK; attached == nil || !*attached {
		return refusal(apierrors.NewBadRequest("VSOCK is not attached."))
	}
	cid := guest.vmi.Status.VSOCKCID
	if cid == nil {
		return guest.conflict("it has no VSOCKCID in its status")
	}
	port, encrypted, err := vsockTarget(r)
	if err != nil {
		return err
	}
	if !websocket.IsWebSocketUpgrade(r) {
		return errNoWebsocket
	}
	return s.stream(r.Context(), w, r, guest, stream{
		to: fmt.Sprintf("vsock %d:%d", *cid, port), counted: metric.VSOCK,
		open: func(ctx context.Context) (net.Conn, error) {
			conn, err := s.options.DialVSOCK(ctx, *cid, port)
			if errors.Is(err, unix.ECONNRESET) || errors.Is(err, unix.ECONNREFUSED) {
				return nil, guest.conflict(fmt.Sprintf("nothing in the guest listens on its VSOCK port %d", port))
			}
			if err != nil {
				return nil, fmt.Errorf("connecting with VSOCK port %d of the guest: %w", port, err)
			}
			if !encrypted {
				return conn, nil
			}
			return s.encrypt(ctx, conn)
		},
	})
}

// vsockTarget reads which port a client wants, and whether by TLS.
func vsockTarget(r *http.Request) (port uint32, encrypted bool, err error) {
	text := r.URL.Query().Get("port")
	number, err := strconv.ParseUint(text, 10, 32)
	if err != nil || number == unix.VMADDR_PORT_ANY {
		return 0, false, refusal(apierrors.NewBadRequest(fmt.Sprintf("port is %q; it must be a number from 0 to %d", text, uint32(unix.VMADDR_PORT_ANY)-1)))
	}
	if text := r.URL.Query().Get("tls"); text != "" {
		if encrypted, err = strconv.ParseBool(text); err != nil {
			return 0, false, refusal(apierrors.NewBadRequest(fmt.Sprintf("tls is %q; it must be true or false", text)))
		}
	}
	return uint32(number), encrypted, nil
}

// encrypt makes conn one of TLS, on which this handler shows its certificate, by which the program in
// the guest knows it. The guest's own is not looked at: the hypervisor says which guest it is.
func (s *Server) encrypt(ctx context.Context, conn net.Conn) (net.Conn, error) {
	client := tls.Client(conn, &tls.Config{
		MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{s.identity},
		InsecureSkipVerify: true, //nolint:gosec // said above
	})
	if err := client.HandshakeContext(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("agreeing on TLS with the guest: %w", err), conn.Close())
	}
	return client, nil
}
