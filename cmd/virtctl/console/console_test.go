package console

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gorilla/websocket"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/slipway-vm/slipway/cmd/virtctl/subresource"
	"github.com/slipway-vm/slipway/tests/fixture/standin"
)

// The server stands at the API server's place for the form of the stream alone: its path, its
// sub-protocol, its frames, and how it ends.

const path = "GET /apis/subresources.kubevirt.io/v1/namespaces/shop/virtualmachineinstances/web/console"

// seat is what the user sees and types.
type seat struct {
	session
	input *io.PipeWriter
	seen  *screen
	said  *screen
}

// screen is written to while it is read.
type screen struct {
	lock sync.Mutex
	text bytes.Buffer
}

func (s *screen) Write(p []byte) (int, error) {
	s.lock.Lock()
	defer s.lock.Unlock()
	return s.text.Write(p)
}

func (s *screen) String() string {
	s.lock.Lock()
	defer s.lock.Unlock()
	return s.text.String()
}

// waitFor waits until text is on the screen.
func (s *screen) waitFor(t *testing.T, text string) {
	t.Helper()
	for !strings.Contains(s.String(), text) {
		select {
		case <-t.Context().Done():
			return
		case <-time.After(time.Millisecond):
		}
	}
}

func newSeat(t *testing.T, server *standin.Server) *seat {
	t.Helper()
	api, err := subresource.Of(server)
	if err != nil {
		t.Fatal(err)
	}
	in, input := io.Pipe()
	t.Cleanup(func() { _ = input.Close() })
	u := &seat{input: input, seen: &screen{}, said: &screen{}}
	u.session = session{
		vmi: "web", in: in, out: u.seen, say: u.said,
		connection: subresource.Connection{
			What: "the console of web", Wait: time.Minute, Steady: time.Minute,
			Open: func(ctx context.Context) (*subresource.Stream, error) {
				return api.Stream(ctx, subresource.Instance("web"), "console", nil)
			},
		},
	}
	return u
}

func (u *seat) typeIn(t *testing.T, text string) {
	t.Helper()
	if _, err := io.WriteString(u.input, text); err != nil {
		t.Error(err)
	}
}

func expect(conn *websocket.Conn, want string) error {
	got := ""
	for got != want {
		text, err := standin.Receive(conn)
		if err != nil {
			return err
		}
		if got += text; !strings.HasPrefix(want, got) {
			return errors.New("received " + got + ", want " + want)
		}
	}
	return nil
}

func TestASessionUntilTheUserLeaves(t *testing.T) {
	server := standin.Start(t)
	server.On(path, server.Stream(func(conn *websocket.Conn) error {
		if err := standin.Send(conn, "login: "); err != nil {
			return err
		}
		if err := expect(conn, "root\r"); err != nil {
			return err
		}
		if _, _, err := conn.ReadMessage(); !websocket.IsCloseError(err, websocket.CloseNormalClosure) {
			return errors.New("the stream did not end as over")
		}
		return nil
	}))
	u := newSeat(t, server)
	go func() {
		u.seen.waitFor(t, "login: ")
		u.typeIn(t, "root")
		u.typeIn(t, "\r\x1dnot sent")
	}()
	if err := u.run(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := u.said.String(); got != "Successfully connected to web console. Press Ctrl+] or Ctrl+5 to exit console.\n" {
		t.Errorf("it said %q", got)
	}
	if got := u.seen.String(); got != "login: " {
		t.Errorf("the guest was seen to say %q", got)
	}
}

func TestAVMIThatDoesNotRunYetIsWaitedFor(t *testing.T) {
	server := standin.Start(t)
	tries := 0
	serve := server.Stream(func(conn *websocket.Conn) error { return standin.Say(conn, websocket.CloseNormalClosure, "") })
	notYet := standin.Refuse(http.StatusBadRequest, metav1.StatusReasonBadRequest, "Unable to connect to VirtualMachineInstance because phase is Scheduling instead of Running")
	server.On(path, func(w http.ResponseWriter, r *http.Request) {
		if tries++; tries == 1 {
			notYet(w, r)
			return
		}
		serve(w, r)
	})
	u := newSeat(t, server)
	if err := u.run(t.Context()); err != nil || !strings.HasSuffix(u.said.String(), "The console of web was closed.\n") {
		t.Errorf("%v, said %q", err, u.said)
	}
	u = newSeat(t, server)
	server.On(path, notYet)
	u.connection.Wait = time.Millisecond
	if err := u.run(t.Context()); err == nil || !strings.Contains(err.Error(), "timeout trying to connect to the virtual machine instance: Unable to connect") {
		t.Errorf("got %v", err)
	}
	server.On(path, standin.Refuse(http.StatusConflict, metav1.StatusReasonConflict, "VMI is in failed status"))
	if err := u.run(t.Context()); err == nil || err.Error() != "VMI is in failed status" {
		t.Errorf("got %v", err)
	}
}

func TestABrokenSessionIsConnectedAgain(t *testing.T) {
	server := standin.Start(t)
	sessions := 0
	server.On(path, server.Stream(func(conn *websocket.Conn) error {
		sessions++
		if sessions == 1 {
			return standin.Send(conn, "first, ") // and no word of the end
		}
		if err := standin.Send(conn, "second"); err != nil {
			return err
		}
		return standin.Say(conn, websocket.ClosePolicyViolation, "another user connected")
	}))
	u := newSeat(t, server)
	err := u.run(t.Context())
	if err == nil || err.Error() != "disconnected from the console of web: another user connected" {
		t.Errorf("got %v", err)
	}
	if got := u.seen.String(); got != "first, second" {
		t.Errorf("the guest was seen to say %q", got)
	}
	for _, want := range []string{"\nYou were disconnected from the console. This could be caused by one of the following:\n - the target VM was powered off", "Connecting again...\nSuccessfully connected"} {
		if !strings.Contains(u.said.String(), want) {
			t.Errorf("it said %q without %q", u.said, want)
		}
	}
}

// Two who take the console from each other do not do so for ever.
func TestASessionThatBreaksAtOnceAgainIsGivenUp(t *testing.T) {
	server := standin.Start(t)
	sessions := 0
	server.On(path, server.Stream(func(*websocket.Conn) error { sessions++; return nil }))
	u := newSeat(t, server)
	if err := u.run(t.Context()); err == nil || !strings.Contains(err.Error(), "disconnected from the console of web again") || sessions != 2 {
		t.Errorf("%v after %d sessions", err, sessions)
	}
}

func TestAUserLeavesWhileNothingAnswers(t *testing.T) {
	server := standin.Start(t)
	first := true
	serve := server.Stream(func(*websocket.Conn) error { return nil })
	server.On(path, func(w http.ResponseWriter, r *http.Request) {
		if first {
			first = false
			serve(w, r)
			return
		}
		standin.Refuse(http.StatusServiceUnavailable, metav1.StatusReasonServiceUnavailable, "virt-api is away")(w, r)
	})
	u := newSeat(t, server)
	go func() {
		u.said.waitFor(t, "Connecting again")
		u.typeIn(t, "\x1d")
	}()
	if err := u.run(t.Context()); err != nil {
		t.Errorf("got %v", err)
	}
}
