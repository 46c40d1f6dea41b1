package subresource

import (
	"bytes"
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/gorilla/websocket"
	"github.com/prometheus/client_golang/prometheus"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	virtv1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// echo is a listener that sends back what it gets, until it is closed.
func echo(t *testing.T) net.Listener {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go func() {
				defer func() { _ = conn.Close() }()
				_, _ = io.Copy(conn, conn)
			}()
		}
	}()
	return listener
}

// forwarded is whose port tunnels lead to.
var forwarded = &virtv1.VirtualMachineInstance{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "forwarded"}}

// tunnelTo serves a tunnel to address, and returns the URL of its web socket.
func tunnelTo(t *testing.T, network, address string) string {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		guest, err := net.Dial(network, address)
		if err != nil {
			t.Error(err)
			return
		}
		defer func() { _ = guest.Close() }()
		if err := tunnel(w, r, forwarded, guest); err != nil {
			t.Error(err)
		}
	}))
	t.Cleanup(server.Close)
	return "ws" + strings.TrimPrefix(server.URL, "http")
}

func open(t *testing.T, url string, protocols ...string) *websocket.Conn {
	t.Helper()
	dialer := websocket.Dialer{Subprotocols: protocols}
	socket, response, err := dialer.DialContext(t.Context(), url, nil)
	if err != nil {
		t.Fatalf("opening %s: %v (%v)", url, err, response)
	}
	t.Cleanup(func() { _ = socket.Close() })
	return socket
}

func TestATunnelCarriesBytesBothWays(t *testing.T) {
	for name, protocols := range map[string][]string{"with the field's protocol": {subprotocol}, "with none": nil} {
		t.Run(name, func(t *testing.T) {
			socket := open(t, tunnelTo(t, "tcp", echo(t).Addr().String()), protocols...)
			if len(protocols) > 0 && socket.Subprotocol() != subprotocol {
				t.Errorf("speaks %q", socket.Subprotocol())
			}
			sent := bytes.Repeat([]byte("0123456789abcdef"), 20<<10) // several pieces
			if err := socket.WriteMessage(websocket.BinaryMessage, sent); err != nil {
				t.Fatal(err)
			}
			var got []byte
			for len(got) < len(sent) {
				kind, piece, err := socket.ReadMessage()
				if err != nil || kind != websocket.BinaryMessage {
					t.Fatalf("message of kind %d: %v, after %d bytes", kind, err, len(got))
				}
				got = append(got, piece...)
			}
			if !bytes.Equal(got, sent) {
				t.Error("what came back is not what was sent")
			}
		})
	}
}

func TestATunnelEndsWithTheGuest(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = listener.Close() }()
	go func() {
		conn, err := listener.Accept()
		if err != nil {
			return
		}
		_, _ = conn.Write([]byte("bye"))
		_ = conn.Close()
	}()
	socket := open(t, tunnelTo(t, "tcp", listener.Addr().String()), subprotocol)
	if _, last, err := socket.ReadMessage(); err != nil || string(last) != "bye" {
		t.Fatalf("got %q, %v", last, err)
	}
	if _, _, err := socket.ReadMessage(); !websocket.IsCloseError(err, websocket.CloseNormalClosure) {
		t.Errorf("the socket ends with %v", err)
	}
}

func TestADatagramIsAMessage(t *testing.T) {
	guest, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = guest.Close() }()
	socket := open(t, tunnelTo(t, "udp", guest.LocalAddr().String()), subprotocol)
	for _, text := range []string{"one", "another"} {
		if err := socket.WriteMessage(websocket.BinaryMessage, []byte(text)); err != nil {
			t.Fatal(err)
		}
		buffer := make([]byte, 100)
		n, from, err := guest.ReadFrom(buffer)
		if err != nil || string(buffer[:n]) != text {
			t.Fatalf("got %q, %v", buffer[:n], err)
		}
		if _, err := guest.WriteTo(buffer[:n], from); err != nil {
			t.Fatal(err)
		}
		if _, got, err := socket.ReadMessage(); err != nil || string(got) != text {
			t.Fatalf("got %q, %v", got, err)
		}
	}
}

func TestATunnelIsForWebSocketsAlone(t *testing.T) {
	recorder := httptest.NewRecorder()
	client, guest := net.Pipe()
	defer func() { _, _ = client.Close(), guest.Close() }()
	if err := tunnel(recorder, httptest.NewRequest(http.MethodGet, "/", nil), forwarded, guest); err != nil {
		t.Fatal(err)
	}
	if recorder.Code != http.StatusBadRequest || !strings.Contains(recorder.Body.String(), `"kind":"Status"`) {
		t.Errorf("got %d %s", recorder.Code, recorder.Body)
	}
}

func TestWhatIsNoPortOfAGuestIsRefused(t *testing.T) {
	vmi := vmiIn(virtv1.Running) // which says that it has another's address
	vmi.Status.Interfaces = []virtv1.VirtualMachineInstanceNetworkInterface{{IP: "10.0.0.7"}}
	for name, c := range map[string]struct{ port, protocol, want string }{
		"no port":          {"ssh", "", `port "ssh" is not a number`},
		"port zero":        {"0", "", `port "0" is not a number`},
		"another protocol": {"22", "unix", `protocol "unix" is not forwarded`},
		"no network":       {"22", "", "no network interfaces are present"},
	} {
		t.Run(name, func(t *testing.T) {
			r := httptest.NewRequest(http.MethodGet, "/", nil)
			r.SetPathValue("port", c.port)
			r.SetPathValue("protocol", c.protocol)
			if network, address, err := unconnected().target(r, vmi); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %s %s, %v, want %s", network, address, err, c.want)
			}
		})
	}
}

func TestAGuestThatCannotAnswerIsNotForwardedTo(t *testing.T) {
	for want, vmi := range map[string]*virtv1.VirtualMachineInstance{
		vmiPaused: vmiIn(virtv1.Running, virtv1.VirtualMachineInstancePaused), vmiNotRunning: vmiIn(virtv1.Succeeded),
	} {
		find := func(*Server, context.Context, client.ObjectKey) (*virtv1.VirtualMachineInstance, error) {
			return vmi, nil
		}
		err := forwardPort(find)(unconnected(), httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/", nil))
		if err == nil || statusOf(err).Code != http.StatusConflict || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %s", err, want)
		}
	}
}

func TestATunnelIsCountedWhileItIsOpen(t *testing.T) {
	socket := open(t, tunnelTo(t, "tcp", echo(t).Addr().String()))
	if err := socket.WriteMessage(websocket.BinaryMessage, []byte("hello")); err != nil {
		t.Fatal(err)
	}
	if _, _, err := socket.ReadMessage(); err != nil { // it is open now
		t.Fatal(err)
	}
	registry := prometheus.NewRegistry()
	registry.MustRegister(tunnels)
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, family := range families {
		if family.GetName() == "kubevirt_portforward_active_tunnels" && family.Metric[0].GetGauge().GetValue() >= 1 {
			return
		}
	}
	t.Errorf("no tunnel is counted: %v", families)
}
