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
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/gorilla/websocket"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	v1 "kubevirt.io/api/core/v1"

	"github.com/slipway-vm/slipway/internal/names"
	"github.com/slipway-vm/slipway/runtime/handler/session"
)

func TestOnlyThePublishedCertificateIsTrusted(t *testing.T) {
	identity, err := newIdentity(time.Now())
	if err != nil {
		t.Fatal(err)
	}
	listener, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{Certificates: []tls.Certificate{identity}})
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			_ = conn.(*tls.Conn).Handshake()
			_ = conn.Close()
		}
	}()
	other, err := newIdentity(time.Now())
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		pinned tls.Certificate
		server string
		want   string
	}{
		"as published":            {identity, names.HandlerServerName, ""},
		"for another program":     {identity, "virt-api", "virt-api"},
		"of an earlier handler's": {other, names.HandlerServerName, "unknown authority"},
	} {
		t.Run(name, func(t *testing.T) {
			pool := x509.NewCertPool()
			if !pool.AppendCertsFromPEM(encodeCertificate(c.pinned)) {
				t.Fatal("the certificate cannot be read")
			}
			conn, err := tls.Dial("tcp", listener.Addr().String(), &tls.Config{RootCAs: pool, ServerName: c.server})
			if err == nil {
				_ = conn.Close()
			}
			if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
				t.Errorf("error %v, want one with %q", err, c.want)
			}
		})
	}
}

func TestErrorsAreStatusesWithTheirCodes(t *testing.T) {
	for name, c := range map[string]struct {
		err  error
		code int32
		want string
	}{
		"what Kubernetes has a word for": {fmt.Errorf("getting it: %w", apierrors.NewNotFound(v1.Resource("virtualmachineinstance"), "x")), 404, `"x" not found`},
		"a launcher that is too old":     {session.ErrOldLauncher, 501, "restart the VM"},
		"a launcher that is away":        {fmt.Errorf("reaching it: %w", session.ErrNotConnected), 503, "try again"},
		"the rest":                       {errors.New("pause: libvirt says no"), 500, "libvirt says no"},
	} {
		t.Run(name, func(t *testing.T) {
			status := statusOf(c.err)
			if status.Kind != "Status" || status.APIVersion != "v1" || status.Status != "Failure" || status.Code != c.code || !strings.Contains(status.Message, c.want) {
				t.Errorf("got %+v", status)
			}
		})
	}
}

func TestHowLongAFreezeMayLast(t *testing.T) {
	for name, c := range map[string]struct {
		body string
		want int32
		bad  bool
	}{
		"nothing":          {"", 0, false},
		"no timeout":       {"{}", 0, false},
		"null":             {`{"unfreezeTimeout":null}`, 0, false},
		"a minute":         {`{"unfreezeTimeout":"1m0s"}`, 60, false},
		"less than second": {`{"unfreezeTimeout":"1ms"}`, 1, false},
		"negative":         {`{"unfreezeTimeout":"-1s"}`, 0, true},
		"too long":         {`{"unfreezeTimeout":"1000000h"}`, 0, true},
		"no duration":      {`{"unfreezeTimeout":"soon"}`, 0, true},
		"too much":         {strings.Repeat(" ", maxBody+1), 0, true},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := readTimeout(httptest.NewRecorder(), httptest.NewRequest(http.MethodPut, "/", strings.NewReader(c.body)))
			if got != c.want || (err != nil) != c.bad {
				t.Errorf("got %d, %v", got, err)
			}
			if err != nil && statusOf(err).Code != http.StatusBadRequest {
				t.Errorf("the code of %v is %d", err, statusOf(err).Code)
			}
		})
	}
}

func TestAConsoleHasOneClient(t *testing.T) {
	var c consoles
	first, leaveFirst, err := c.enter(t.Context(), "vmi")
	if err != nil || first.Err() != nil {
		t.Fatalf("the first: %v, %v", err, first.Err())
	}
	_, leaveOther, err := c.enter(t.Context(), "another VMI")
	if err != nil || first.Err() != nil {
		t.Fatalf("another VMI's console ends this one's: %v, %v", err, first.Err())
	}
	leaveOther()
	entered := make(chan context.Context)
	leave := make(chan func(), 1)
	go func() {
		second, leaveSecond, _ := c.enter(t.Context(), "vmi")
		leave <- leaveSecond
		entered <- second
	}()
	<-first.Done()
	if !errors.Is(context.Cause(first), goodbyeTaken) {
		t.Errorf("the first was sent away because of %v", context.Cause(first))
	}
	select {
	case <-entered:
		t.Fatal("the second came in before the first let go")
	default:
	}
	leaveFirst()
	if second := <-entered; second.Err() != nil {
		t.Errorf("the second is out: %v", second.Err())
	}
	(<-leave)()
	if len(c.has) != 0 {
		t.Errorf("%d consoles are still held", len(c.has))
	}
}

// joined is a client of a server that joins it with device until ctx is done.
func joined(t *testing.T, ctx context.Context) (client *websocket.Conn, device net.Conn, ended <-chan goodbye) {
	t.Helper()
	near, far := net.Pipe()
	result := make(chan goodbye, 1)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		socket, err := upgrader.Upgrade(w, r, nil)
		if err != nil {
			t.Errorf("upgrading: %v", err)
			return
		}
		result <- join(ctx, socket, near)
	}))
	t.Cleanup(server.Close)
	dialer := websocket.Dialer{Subprotocols: []string{"other", subprotocol}}
	client, response, err := dialer.DialContext(t.Context(), strings.Replace(server.URL, "http", "ws", 1), nil)
	if err != nil {
		t.Fatal(err)
	}
	_ = response.Body.Close()
	if client.Subprotocol() != subprotocol {
		t.Errorf("the sub-protocol is %q", client.Subprotocol())
	}
	t.Cleanup(func() {
		_ = client.Close()
		_ = far.Close()
	})
	return client, far, result
}

func TestAStreamIsCarriedBothWays(t *testing.T) {
	client, device, _ := joined(t, t.Context())
	go func() { _, _ = io.WriteString(device, "login:") }()
	kind, message, err := client.ReadMessage()
	if err != nil || kind != websocket.BinaryMessage || string(message) != "login:" {
		t.Errorf("the client got %q of kind %d, %v", message, kind, err)
	}
	for _, kind := range []int{websocket.BinaryMessage, websocket.TextMessage} {
		if err := client.WriteMessage(kind, []byte("root\n")); err != nil {
			t.Fatal(err)
		}
		got := make([]byte, 5)
		if _, err := io.ReadFull(device, got); err != nil || string(got) != "root\n" {
			t.Errorf("the device got %q, %v", got, err)
		}
	}
}

func TestTheEndOfAStreamIsTold(t *testing.T) {
	for name, c := range map[string]struct {
		end  func(client *websocket.Conn, device net.Conn, cancel context.CancelCauseFunc)
		want goodbye
	}{
		"by the device":  {func(_ *websocket.Conn, device net.Conn, _ context.CancelCauseFunc) { _ = device.Close() }, goodbyeDevice},
		"by the client":  {func(client *websocket.Conn, _ net.Conn, _ context.CancelCauseFunc) { _ = client.Close() }, goodbyeClient},
		"by another":     {func(_ *websocket.Conn, _ net.Conn, cancel context.CancelCauseFunc) { cancel(goodbyeTaken) }, goodbyeTaken},
		"by the handler": {func(_ *websocket.Conn, _ net.Conn, cancel context.CancelCauseFunc) { cancel(nil) }, goodbyeRestart},
	} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithCancelCause(t.Context())
			defer cancel(nil)
			client, device, ended := joined(t, ctx)
			c.end(client, device, cancel)
			if got := <-ended; got != c.want {
				t.Errorf("it ended because %v", got)
			}
			_, _, err := client.ReadMessage()
			var closed *websocket.CloseError
			if c.want != goodbyeClient && (!errors.As(err, &closed) || closed.Code != c.want.code || closed.Text != c.want.text) {
				t.Errorf("the client reads %v", err)
			}
			if _, err := device.Read(make([]byte, 1)); err == nil {
				t.Error("the device's end is still open")
			}
		})
	}
}
