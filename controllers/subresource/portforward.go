package subresource

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"time"

	"github.com/gorilla/websocket"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	virtv1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/slipway-vm/slipway/internal/metric"
)

// subprotocol is what the field's web sockets speak: bytes in binary messages.
const subprotocol = "plain.kubevirt.io"

// maxDatagram is the largest message that goes on as one datagram, and the size of one
// message to the client, in bytes.
const maxDatagram = 64 << 10

// tunnels counts the ports that this process forwards.
var tunnels = metric.NewConnections(metric.Tunnel)

// forwardPort connects the client's web socket with a port of the guest.
func forwardPort(find finder) answer {
	return func(s *Server, w http.ResponseWriter, r *http.Request) error {
		vmi, err := find(s, r.Context(), key(r))
		if err != nil {
			return err
		}
		switch {
		case !vmi.IsRunning(): // the address of one that has ended may be another pod's by now
			return conflicting(vmi, vmiNotRunning)
		case is(vmi, virtv1.VirtualMachineInstancePaused):
			return conflicting(vmi, vmiPaused)
		}
		network, address, err := s.target(r, vmi)
		if err != nil {
			return err
		}
		dialer := &net.Dialer{Timeout: dialTimeout}
		guest, err := dialer.DialContext(r.Context(), network, address)
		if err != nil {
			return fmt.Errorf("dialing VM: %w", err)
		}
		defer closeQuietly(guest)
		return tunnel(w, r, vmi, guest)
	}
}

// target is what a request for a port means.
func (s *Server) target(r *http.Request, vmi *virtv1.VirtualMachineInstance) (network, address string, err error) {
	port, err := strconv.ParseUint(r.PathValue("port"), 10, 16)
	if err != nil || port == 0 {
		return "", "", badRequest("port %q is not a number from 1 to 65535", r.PathValue("port"))
	}
	network = "tcp"
	if protocol := r.PathValue("protocol"); protocol != "" {
		network = protocol
	}
	if network != "tcp" && network != "udp" {
		return "", "", badRequest("protocol %q is not forwarded, use tcp or udp", network)
	}
	host, err := s.addressOf(r.Context(), vmi)
	if err != nil {
		return "", "", err
	}
	return network, net.JoinHostPort(host, strconv.FormatUint(port, 10)), nil
}

// addressOf is where the guest is reached: by its running pod, when it is on the pods' network.
// What a guest says of its addresses does not count, for it may name others' ones.
func (s *Server) addressOf(ctx context.Context, vmi *virtv1.VirtualMachineInstance) (string, error) {
	for _, network := range vmi.Spec.Networks {
		if network.Pod == nil {
			continue
		}
		pod, err := s.launcherPod(ctx, vmi)
		if err != nil {
			return "", err
		}
		if pod != nil && pod.Status.Phase == corev1.PodRunning && pod.Status.PodIP != "" {
			return pod.Status.PodIP, nil
		}
		return "", conflicting(vmi, "its pod has no address")
	}
	return "", badRequest(noInterfaces)
}

// tunnel carries bytes between the client and guest until either ends. A client that is gone is
// known by TCP, for one that only stands still may take as long as it likes.
func tunnel(w http.ResponseWriter, r *http.Request, vmi *virtv1.VirtualMachineInstance, guest net.Conn) error {
	upgrader := websocket.Upgrader{
		HandshakeTimeout: dialTimeout, Subprotocols: []string{subprotocol},
		CheckOrigin: func(*http.Request) bool { return true }, // the API server has let him in
		Error: func(w http.ResponseWriter, r *http.Request, _ int, reason error) {
			fail(w, r, refuse(apierrors.NewBadRequest(reason.Error())))
		},
	}
	socket, err := upgrader.Upgrade(w, r, nil)
	if err != nil {
		log.FromContext(r.Context()).V(1).Info("the client opened no web socket", "path", r.URL.Path, "reason", err.Error())
		return nil // the upgrader has answered
	}
	defer closeQuietly(socket)
	defer tunnels.Begin(metric.Tunnel, vmi.Namespace, vmi.Name)()
	ended := make(chan error, 2)
	go func() { ended <- toGuest(guest, socket) }()
	go func() { ended <- toClient(socket, guest) }()
	if err := <-ended; err != nil {
		log.FromContext(r.Context()).V(1).Info("a forwarded port was closed", "path", r.URL.Path, "reason", err.Error())
	}
	farewell := websocket.FormatCloseMessage(websocket.CloseNormalClosure, "")
	_ = socket.WriteControl(websocket.CloseMessage, farewell, time.Now().Add(time.Second))
	return nil
}

// toGuest carries each message of the client to the guest, in one piece.
func toGuest(guest io.Writer, socket *websocket.Conn) error {
	buffer := make([]byte, maxDatagram)
	for {
		_, message, err := socket.NextReader()
		if err != nil {
			return fmt.Errorf("reading from the client: %w", err)
		}
		for err == nil {
			var n int
			n, err = io.ReadFull(message, buffer)
			if n == 0 {
				continue
			}
			if _, err := guest.Write(buffer[:n]); err != nil {
				return fmt.Errorf("writing to the guest: %w", err)
			}
		}
		if !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
			return fmt.Errorf("reading from the client: %w", err)
		}
	}
}

// toClient carries what the guest sends to the client, a message for each piece.
func toClient(socket *websocket.Conn, guest io.Reader) error {
	buffer := make([]byte, maxDatagram)
	for {
		n, err := guest.Read(buffer)
		if n > 0 {
			if err := socket.WriteMessage(websocket.BinaryMessage, buffer[:n]); err != nil {
				return fmt.Errorf("writing to the client: %w", err)
			}
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("reading from the guest: %w", err)
		}
	}
}

// closeQuietly closes what nobody reads any more.
func closeQuietly(c io.Closer) { _ = c.Close() }
