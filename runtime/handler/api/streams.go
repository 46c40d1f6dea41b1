package api

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"

	"github.com/gorilla/websocket"
	"golang.org/x/sys/unix"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/slipway-vm/slipway/internal/metric"
	"github.com/slipway-vm/slipway/runtime/protocol"
)

// subprotocol carries a device's bytes as they are, in binary messages.
const subprotocol = "plain.kubevirt.io"

// connections counts the clients of this process's streams.
var connections = metric.NewConnections(metric.Console, metric.VNC, metric.USB, metric.VSOCK)

// chunk is how much of a device's output one message carries at most, in bytes.
const chunk = 32 << 10

// upgrader makes websockets. Any origin will do: callers show a token in a header, which no
// page of a browser can make it send.
var upgrader = websocket.Upgrader{
	Subprotocols:   []string{subprotocol},
	ReadBufferSize: 4 << 10, WriteBufferSize: 4 << 10,
	CheckOrigin: func(*http.Request) bool { return true },
	Error: func(w http.ResponseWriter, r *http.Request, code int, reason error) {
		refuse(w, r, apierrors.NewGenericServerResponse(code, r.Method, schema.GroupResource{}, "", reason.Error(), 0, true))
	},
}

// console joins a client with the guest's first serial port, of which QEMU serves one client
// at a time: the one before is sent away.
func (s *Server) console(w http.ResponseWriter, r *http.Request, guest guest) error {
	devices := &guest.vmi.Spec.Domain.Devices
	if devices.AutoattachSerialConsole != nil && !*devices.AutoattachSerialConsole {
		return refusal(apierrors.NewBadRequest("No serial consoles are present."))
	}
	if !websocket.IsWebSocketUpgrade(r) {
		return errNoWebsocket
	}
	ctx, leave, err := s.consoles.enter(r.Context(), guest.vmi.UID)
	defer leave()
	if err != nil {
		return guest.conflict(err.Error())
	}
	return s.stream(ctx, w, r, guest, device(guest, protocol.ChannelConsole, metric.Console))
}

// vnc joins a client with the guest's screen, of which QEMU serves several, unless one of
// them asks to have it alone.
func (s *Server) vnc(w http.ResponseWriter, r *http.Request, guest guest) error {
	devices := &guest.vmi.Spec.Domain.Devices
	if devices.AutoattachGraphicsDevice != nil && !*devices.AutoattachGraphicsDevice {
		return refusal(apierrors.NewBadRequest("No graphics devices are present."))
	}
	if !websocket.IsWebSocketUpgrade(r) {
		return errNoWebsocket
	}
	return s.stream(r.Context(), w, r, guest, device(guest, protocol.ChannelVNC, metric.VNC))
}

var errNoWebsocket = refusal(apierrors.NewBadRequest("this is served as a websocket only; send Connection: Upgrade and Upgrade: websocket"))

// stream is what of a guest a client is joined with.
type stream struct {
	// to is what it is called in the log.
	to string
	// counted is what it is counted as.
	counted metric.Metric
	open    func(context.Context) (net.Conn, error)
}

// device is a device of the guest, which its launcher joins.
func device(guest guest, channel protocol.Channel, counted metric.Metric) stream {
	return stream{to: string(channel), counted: counted, open: func(ctx context.Context) (net.Conn, error) { return connect(ctx, guest, channel) }}
}

// stream joins a client with the guest until either side ends or ctx is done. It returns
// errors from before there is a websocket.
func (s *Server) stream(ctx context.Context, w http.ResponseWriter, r *http.Request, guest guest, what stream) error {
	s.streams.Add(1)
	defer s.streams.Done()
	opening, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	device, err := what.open(opening)
	if err != nil {
		return err
	}
	defer func() { _ = device.Close() }()
	client, err := upgrader.Upgrade(w, r, nil)
	if err != nil { // the client was told
		log.FromContext(ctx).V(1).Info("Failed to make a websocket", "err", err)
		return nil
	}
	logger := log.FromContext(ctx).WithValues("VirtualMachineInstance", guest.vmi.Namespace+"/"+guest.vmi.Name, "channel", what.to)
	logger.Info("A client is connected")
	defer connections.Begin(what.counted, guest.vmi.Namespace, guest.vmi.Name)()
	why := join(ctx, client, device)
	logger.Info("A client is disconnected", "reason", why.text)
	return nil
}

// connect has the launcher join one end of a pair of sockets with the device, and returns
// the other.
func connect(ctx context.Context, guest guest, channel protocol.Channel) (net.Conn, error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("making a pair of sockets: %w", err)
	}
	near, far := os.NewFile(uintptr(fds[0]), "near"), os.NewFile(uintptr(fds[1]), "far")
	defer func() {
		_ = near.Close()
		_ = far.Close()
	}()
	device, err := net.FileConn(near) // a copy
	if err != nil {
		return nil, fmt.Errorf("making a pair of sockets: %w", err)
	}
	if err := guest.session.Connect(ctx, channel, far); err != nil {
		return nil, errors.Join(err, device.Close())
	}
	return device, nil
}
