package vnc

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/gorilla/websocket"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/slipway-vm/slipway/tests/fixture/standin"
)

// leave greets, and goes away as a virt-handler that is restarted does.
func leave(conn *websocket.Conn) error {
	if err := standin.Send(conn, "RFB 003.008\n"); err != nil {
		return err
	}
	return standin.Say(conn, websocket.CloseGoingAway, "virt-handler is being restarted; connect again")
}

// inTurn answers each time with the next handler, and then with the last one.
func inTurn(handlers ...http.HandlerFunc) http.HandlerFunc {
	var turn atomic.Int32
	return func(w http.ResponseWriter, r *http.Request) {
		handlers[min(int(turn.Add(1)), len(handlers))-1](w, r)
	}
}

// greeted connects to address and reads what the guest says first.
func greeted(address string) (net.Conn, error) {
	conn, err := net.Dial("tcp", address)
	if err != nil {
		return nil, err
	}
	greeting := make([]byte, 12)
	if _, err := io.ReadFull(conn, greeting); err != nil || string(greeting) != "RFB 003.008\n" {
		return nil, fmt.Errorf("the guest greets with %q, %w", greeting, err)
	}
	return conn, nil
}

func TestABrokenScreenIsConnectedAgainAtTheSamePort(t *testing.T) {
	server := standin.Start(t)
	away := standin.Refuse(http.StatusServiceUnavailable, metav1.StatusReasonServiceUnavailable, "virt-handler is not there")
	server.On(screen, inTurn(server.Stream(leave), away, server.Stream(serveScreen)))
	command := NewCommand(server)
	out, printed := io.Pipe()
	said, saying := io.Pipe()
	command.SetOut(printed)
	command.SetErr(saying)
	command.SetArgs([]string{"web", "--proxy-only"})
	end := make(chan error, 1)
	go func() { end <- command.ExecuteContext(t.Context()) }()
	var answer struct{ Port int }
	if err := json.NewDecoder(out).Decode(&answer); err != nil {
		t.Fatal(err)
	}
	address := fmt.Sprintf("127.0.0.1:%d", answer.Port)
	first, err := greeted(address)
	if err != nil {
		t.Fatal(err)
	}
	says := func(want string) {
		t.Helper()
		words := make([]byte, len(want))
		if _, err := io.ReadFull(said, words); err != nil || string(words) != want {
			t.Errorf("it said %q, %v", words, err)
		}
	}
	says("You were disconnected from the screen of web.\nConnecting again...\n")
	early, err := net.Dial("tcp", address) // a viewer that gives up before there is a screen
	if err != nil {
		t.Fatal(err)
	}
	_ = early.Close()
	says("Successfully connected to the screen of web. Connect your viewer again.\n")
	if _, err := first.Read(make([]byte, 1)); err == nil {
		t.Error("the first viewer is kept")
	}
	second, err := greeted(address)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(second, "RFB 003.003\n"); err != nil {
		t.Error(err)
	}
	_ = second.Close()
	if err := <-end; err != nil {
		t.Errorf("it ended with %v", err)
	}
}

// start starts a session whose viewer is view.
func start(t *testing.T, server *standin.Server, view func(ctx context.Context, address string) error) (said string, end error) {
	t.Helper()
	o := &options{start: func() (func(context.Context, string) error, error) { return view, nil }}
	command := o.command(server)
	var words strings.Builder
	command.SetErr(&words)
	command.SilenceErrors, command.SilenceUsage = true, true
	command.SetArgs([]string{"web"})
	end = command.ExecuteContext(t.Context())
	return words.String(), end
}

func TestTheViewerOfABrokenScreenIsStartedAnew(t *testing.T) {
	server := standin.Start(t)
	server.On(screen, inTurn(server.Stream(leave), server.Stream(serveScreen)))
	var started atomic.Int32
	said, err := start(t, server, func(ctx context.Context, address string) error {
		first := started.Add(1) == 1 // before it connects: behind that, the next one may overtake it
		conn, err := greeted(address)
		if err != nil {
			return err
		}
		if first {
			<-ctx.Done() // it stays until it is ended
			return nil
		}
		_, _ = io.WriteString(conn, "RFB 003.003\n")
		return conn.Close()
	})
	if err != nil || started.Load() != 2 || !strings.Contains(said, "Connecting again...\nSuccessfully connected to the screen of web.\n") {
		t.Errorf("%v; %d viewers were started; it said %q", err, started.Load(), said)
	}
}

func TestAScreenThatIsNotConnectedAgain(t *testing.T) {
	stay := func(ctx context.Context, address string) error {
		conn, err := net.Dial("tcp", address)
		if err == nil {
			<-ctx.Done()
			_ = conn.Close()
		}
		return nil
	}
	gone := standin.Refuse(http.StatusNotFound, metav1.StatusReasonNotFound, `virtualmachineinstance.kubevirt.io "web" not found`)
	for name, c := range map[string]struct {
		answer func(*standin.Server) http.HandlerFunc
		want   string
	}{
		"it breaks at once again": {func(s *standin.Server) http.HandlerFunc { return s.Stream(leave) }, "disconnected from the screen of web again: "},
		"its VMI is gone":         {func(s *standin.Server) http.HandlerFunc { return inTurn(s.Stream(leave), gone) }, `"web" not found`},
		"it is ended for good": {func(s *standin.Server) http.HandlerFunc {
			return s.Stream(func(conn *websocket.Conn) error {
				return standin.Say(conn, websocket.ClosePolicyViolation, "no more screens")
			})
		}, "disconnected from the screen: no more screens"},
	} {
		t.Run(name, func(t *testing.T) {
			server := standin.Start(t)
			server.On(screen, c.answer(server))
			if _, err := start(t, server, stay); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want %s", err, c.want)
			}
		})
	}
}
