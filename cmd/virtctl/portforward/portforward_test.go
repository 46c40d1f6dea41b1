package portforward

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gorilla/websocket"

	"github.com/slipway-vm/slipway/tests/fixture/standin"
)

// The server stands at the API server's place for the form of the streams alone.

func TestParseTarget(t *testing.T) {
	for text, want := range map[string]Target{
		"vm/web":                           {VM, "", "web"},
		"VMI/web":                          {VMI, "", "web"},
		"virtualmachines/web/shop":         {VM, "shop", "web"},
		"virtualmachineinstance/a.b/infra": {VMI, "infra", "a.b"},
	} {
		if got, err := ParseTarget(text); err != nil || got != want {
			t.Errorf("%s: %+v, %v", text, got, err)
		}
	}
	for text, want := range map[string]string{
		"": "target cannot be empty", "web": "target must contain type and name separated by '/'", "vm/": "name cannot be empty",
		"vm/web/": "namespace cannot be empty", "vm/a/b/c": "target is not valid with more than two '/'", "pod/web": "unsupported resource type 'pod'",
	} {
		if _, err := ParseTarget(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %s", text, err, want)
		}
	}
}

func TestParsePorts(t *testing.T) {
	for text, want := range map[string]port{
		"80": {"tcp", 80, 80}, "8080:80": {"tcp", 8080, 80}, "udp/5353:53": {"udp", 5353, 53}, "tcp/22": {"tcp", 22, 22}, "0:22": {"tcp", 0, 22},
	} {
		if got, err := parsePort(text); err != nil || got != want {
			t.Errorf("%s: %+v, %v", text, got, err)
		}
	}
	for _, text := range []string{"", "http", "80:", ":80", "sctp/80", "70000", "-1", "80:0", "1:2:3"} {
		if got, err := parsePorts([]string{"80", text}); err == nil {
			t.Errorf("%q passes as %+v", text, got)
		}
	}
}

// lines are written to while they are read.
type lines struct {
	lock sync.Mutex
	text bytes.Buffer
}

func (l *lines) Write(p []byte) (int, error) {
	l.lock.Lock()
	defer l.lock.Unlock()
	return l.text.Write(p)
}

func (l *lines) String() string {
	l.lock.Lock()
	defer l.lock.Unlock()
	return l.text.String()
}

const route = "GET /apis/subresources.kubevirt.io/v1/namespaces/%s/%s/web/portforward/%s"

// start runs the verb until the test ends, and returns what it writes and how it ends.
func start(t *testing.T, server *standin.Server, stdin io.Reader, args ...string) (stdout, log *lines, end chan error, stop context.CancelFunc) {
	t.Helper()
	stdout, log, end = &lines{}, &lines{}, make(chan error, 1)
	command := NewCommand(server)
	command.SilenceErrors, command.SilenceUsage = true, true
	command.SetIn(stdin)
	command.SetOut(stdout)
	command.SetErr(log)
	command.SetArgs(args)
	ctx, stop := context.WithCancel(t.Context())
	t.Cleanup(stop)
	go func() { end <- command.ExecuteContext(ctx) }()
	return stdout, log, end, stop
}

func echo(conn *websocket.Conn) error {
	for {
		text, err := standin.Receive(conn)
		if err != nil {
			return nil // it was closed
		}
		if err := standin.Send(conn, "echo "+text); err != nil {
			return err
		}
	}
}

func TestStandardInputAndOutput(t *testing.T) {
	server := standin.Start(t)
	server.On(fmt.Sprintf(route, "infra", "virtualmachines", "22/tcp"), server.Stream(func(conn *websocket.Conn) error {
		if text, err := standin.Receive(conn); err != nil || text != "SSH-2.0" {
			return fmt.Errorf("received %q, %w", text, err)
		}
		if err := standin.Send(conn, "SSH-2.0-guest"); err != nil {
			return err
		}
		return standin.Say(conn, websocket.CloseNormalClosure, "")
	}))
	in, typed := io.Pipe()
	defer func() { _ = typed.Close() }()
	stdout, _, end, _ := start(t, server, in, "--stdio", "vm/web/infra", "22")
	if _, err := io.WriteString(typed, "SSH-2.0"); err != nil {
		t.Fatal(err)
	}
	if err := <-end; err != nil || stdout.String() != "SSH-2.0-guest" {
		t.Errorf("%v, got %q", err, stdout)
	}
	_, _, end, _ = start(t, server, in, "--stdio", "vm/web", "22", "80")
	if err := <-end; err == nil || err.Error() != "only one port supported when forwarding to stdout" {
		t.Errorf("got %v", err)
	}
	_, _, end, _ = start(t, server, in, "--stdio", "vmi/web", "22")
	if err := <-end; err == nil || !strings.Contains(err.Error(), "can't access vmi/web.shop: this cluster does not serve") {
		t.Errorf("got %v", err)
	}
}

func TestPortsOfVSOCK(t *testing.T) {
	const path = "GET /apis/subresources.kubevirt.io/v1/namespaces/shop/virtualmachineinstances/web/vsock"
	for args, query := range map[string]string{
		"vm/web 9000 --vsock":                         "?port=9000&tls=true",
		"vmi/web tcp/8080:9000 --vsock":               "?port=9000&tls=true",
		"vmi/web 8080:9000 --vsock --vsock-tls=false": "?port=9000&tls=false",
	} {
		server := standin.Start(t)
		server.On(path, server.Stream(func(conn *websocket.Conn) error {
			if err := standin.Send(conn, "from the guest"); err != nil {
				return err
			}
			return standin.Say(conn, websocket.CloseNormalClosure, "")
		}))
		in, typed := io.Pipe()
		stdout, _, end, _ := start(t, server, in, append(strings.Fields(args), "--stdio")...)
		if err := <-end; err != nil || stdout.String() != "from the guest" || server.Seen()[0] != path+query {
			t.Errorf("%s: %v, got %q by %q, want %s", args, err, stdout, server.Seen(), query)
		}
		_ = typed.Close()
	}
	_, _, end, _ := start(t, standin.Start(t), strings.NewReader(""), "vmi/web", "80", "udp/53", "--vsock")
	if err := <-end; err == nil || !strings.Contains(err.Error(), "protocol udp is not supported over VSOCK") {
		t.Errorf("got %v", err)
	}
}

// freePort is a port that nobody uses at the moment.
func freePort(t *testing.T, network string) int {
	t.Helper()
	if network == "udp" {
		conn, err := net.ListenPacket("udp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = conn.Close() }()
		return conn.LocalAddr().(*net.UDPAddr).Port
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = listener.Close() }()
	return listener.Addr().(*net.TCPAddr).Port
}

func TestLocalPorts(t *testing.T) {
	server := standin.Start(t)
	tcp, udp := freePort(t, "tcp"), freePort(t, "udp")
	server.On(fmt.Sprintf(route, "shop", "virtualmachineinstances", "80/tcp"), server.Stream(echo))
	server.On(fmt.Sprintf(route, "shop", "virtualmachineinstances", "53/udp"), server.Stream(echo))
	_, log, end, stop := start(t, server, strings.NewReader(""), "vmi/web", fmt.Sprintf("%d:80", tcp), fmt.Sprintf("udp/%d:53", udp))
	for network, number := range map[string]int{"tcp": tcp, "udp": udp} {
		for _, text := range []string{"one", "two"} { // from a sender each
			if got := ask(t, network, number, text); got != "echo "+text {
				t.Errorf("%s: got %q", network, got)
			}
		}
	}
	stop()
	if err := <-end; err != nil {
		t.Errorf("it ended with %v", err)
	}
	if want := fmt.Sprintf("forwarding tcp 127.0.0.1:%d to 80\n", tcp); !strings.HasPrefix(log.String(), want) {
		t.Errorf("it said %q", log)
	}
}

// ask sends text to a local port, once it is open, and returns the answer.
func ask(t *testing.T, network string, number int, text string) string {
	t.Helper()
	buffer := make([]byte, 100)
	for deadline := time.Now().Add(3 * time.Minute); time.Now().Before(deadline); {
		conn, err := net.Dial(network, fmt.Sprintf("127.0.0.1:%d", number))
		if err != nil {
			<-time.After(10 * time.Millisecond) // not open yet
			continue
		}
		_ = conn.SetDeadline(time.Now().Add(10 * time.Second))
		n := 0
		if _, err = io.WriteString(conn, text); err == nil {
			n, err = conn.Read(buffer)
		}
		_ = conn.Close()
		if err == nil {
			return string(buffer[:n])
		}
	}
	t.Fatalf("nothing answers on %s port %d", network, number)
	return ""
}
