package subresource

import (
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/gorilla/websocket"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/slipway-vm/slipway/tests/fixture/standin"
)

// The server stands at the API server's place for the form of the requests alone.

const console = "GET /apis/subresources.kubevirt.io/v1/namespaces/shop/virtualmachineinstances/web/console"

func open(t *testing.T, server *standin.Server) (*Stream, error) {
	t.Helper()
	api, err := Of(server)
	if err != nil {
		t.Fatal(err)
	}
	return api.Stream(t.Context(), Instance("web"), "console", nil)
}

func TestAStreamCarriesBytes(t *testing.T) {
	server := standin.Start(t)
	long := strings.Repeat("datagram", 8000) // below the longest
	server.On(console, server.Stream(func(conn *websocket.Conn) error {
		if text, err := standin.Receive(conn); err != nil || text != long {
			return errors.New("a write is not a frame")
		}
		for _, text := range []string{"", "a", long, "b"} {
			if err := standin.Send(conn, text); err != nil {
				return err
			}
		}
		return standin.Say(conn, websocket.CloseNormalClosure, "")
	}))
	stream, err := open(t, server)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = stream.Close() }()
	if _, err := io.WriteString(stream, long); err != nil {
		t.Fatal(err)
	}
	if got, err := io.ReadAll(stream); err != nil || string(got) != "a"+long+"b" {
		t.Errorf("read %d bytes, %v", len(got), err)
	}
}

func TestRefusals(t *testing.T) {
	for name, c := range map[string]struct {
		answer http.HandlerFunc
		is     func(error) bool
		want   string
	}{
		"a Status":    {standin.Refuse(http.StatusConflict, metav1.StatusReasonConflict, "VMI is in failed status"), apierrors.IsConflict, "VMI is in failed status"},
		"no such API": {func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "404 page not found", http.StatusNotFound) }, apierrors.IsNotFound, "this cluster does not serve subresources.kubevirt.io/v1"},
		"a proxy's answer": {func(w http.ResponseWriter, _ *http.Request) {
			http.Error(w, "no backend", http.StatusServiceUnavailable)
		}, apierrors.IsServiceUnavailable, "currently unable to handle the request"},
		"no websocket": {standin.Accepted, func(err error) bool { return err != nil }, ""},
	} {
		t.Run(name, func(t *testing.T) {
			server := standin.Start(t)
			server.On(console, c.answer)
			if _, err := open(t, server); !c.is(err) || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want %s", err, c.want)
			}
		})
	}
}

func TestFarewell(t *testing.T) {
	for name, c := range map[string]struct {
		end  func(*websocket.Conn) error
		told bool
		want string
	}{
		"a text": {func(conn *websocket.Conn) error {
			return standin.Say(conn, websocket.ClosePolicyViolation, "another user")
		}, true, "another user"},
		"a restart":  {func(conn *websocket.Conn) error { return standin.Say(conn, websocket.CloseGoingAway, "restarted") }, false, ""},
		"a code":     {func(conn *websocket.Conn) error { return standin.Say(conn, websocket.CloseInternalServerErr, "") }, true, "the connection was closed with code 1011"},
		"nothing":    {func(*websocket.Conn) error { return nil }, false, ""},
		"a good end": {func(conn *websocket.Conn) error { return standin.Say(conn, websocket.CloseNormalClosure, "") }, false, ""},
	} {
		t.Run(name, func(t *testing.T) {
			server := standin.Start(t)
			server.On(console, server.Stream(c.end))
			stream, err := open(t, server)
			if err != nil {
				t.Fatal(err)
			}
			_, err = io.ReadAll(stream)
			if text, told := Farewell(err); text != c.want || told != c.told || (err == nil) != (name == "a good end") {
				t.Errorf("%v: told %v %q", err, told, text)
			}
		})
	}
}

func TestKinds(t *testing.T) {
	for word, want := range map[string]Object{"vm": Machine("a"), "VirtualMachines": Machine("a"), "vmis": Instance("a"), "virtualmachineinstance": Instance("a")} {
		if object, err := KindOf(word); err != nil || object("a") != want {
			t.Errorf("%s: %v", word, err)
		}
	}
	if _, err := KindOf("pod"); err == nil {
		t.Error("a pod passes")
	}
}
