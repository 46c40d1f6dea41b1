//go:build integration

package api

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"image/png"
	"io"
	"net/http"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gorilla/websocket"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	v1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-vm/slipway/internal/names"
	"github.com/slipway-vm/slipway/runtime/handler/session"
	"github.com/slipway-vm/slipway/runtime/protocol"
	"github.com/slipway-vm/slipway/runtime/protocol/wire"
	"github.com/slipway-vm/slipway/tests/fixture/apiserver"
	"github.com/slipway-vm/slipway/tests/fixture/need"
)

const (
	nodeName  = "node1"
	namespace = "slipway"
	podUID    = types.UID("0f5f7a5e-1f4a-4a3e-9d57-3a4a5f2f6a10")
)

// patience is how long a wait may take: on a busy machine a process may have no processor for half a minute.
const patience = 5 * time.Minute

// world is an API server, a handler's API that asks it, and launchers.
type world struct {
	client   client.Client
	server   *Server
	sessions *session.Server
	events   *events.FakeRecorder
	root     string
	clock    atomic.Int64 // seconds on the handler's, which moves for the test alone
	stop     func()
	http     *http.Client
	dialer   websocket.Dialer
	token    string // virt-api's
}

func newWorld(t *testing.T) *world {
	t.Helper()
	need.Root(t, "make cgroups and processes of another user")
	config := apiserver.Start(t, "../../../controllers/hyperconverged/components/crds/kubevirt.io_virtualmachineinstances.yaml")
	w := &world{events: events.NewFakeRecorder(10)}
	var err error
	w.client = apiserver.Player(t, config)
	w.root, err = os.MkdirTemp("", "kubelet")
	must(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(w.root) })
	must(t, os.Chmod(w.root, 0o755))
	must(t, w.client.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}))

	w.sessions = session.NewServer(w.root, func(types.NamespacedName) {})
	w.server, err = New(t.Context(), Options{
		Address: "127.0.0.1:0", NodeName: nodeName, Namespace: namespace, Client: w.client, Recorder: w.events, Sessions: w.sessions, DialVSOCK: w.dialVSOCK,
	})
	must(t, err)
	began := time.Now()
	w.server.callers.now = func() time.Time { return began.Add(time.Duration(w.clock.Load()) * time.Second) }
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 2)
	go func() { ended <- w.sessions.Start(ctx) }()
	go func() { ended <- w.server.Start(ctx) }()
	stopped := false
	w.stop = func() {
		if stopped {
			return
		}
		stopped = true
		cancel()
		for range 2 {
			if err := <-ended; err != nil {
				t.Errorf("a server ended with %v", err)
			}
		}
	}
	t.Cleanup(w.stop)

	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(w.server.Certificate())
	trust := &tls.Config{RootCAs: pool, ServerName: names.HandlerServerName}
	w.http = &http.Client{Transport: &http.Transport{TLSClientConfig: trust}}
	w.dialer = websocket.Dialer{TLSClientConfig: trust, Subprotocols: []string{subprotocol}}
	w.token = w.newToken(t, apiAccount, names.HandlerAudience)
	return w
}

// newToken has the API server make a token of a ServiceAccount.
func (w *world) newToken(t *testing.T, account string, audiences ...string) string {
	t.Helper()
	object := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: account}}
	must(t, client.IgnoreAlreadyExists(w.client.Create(t.Context(), object)))
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{Audiences: audiences}}
	must(t, w.client.SubResource("token").Create(t.Context(), object, request))
	return request.Status.Token
}

// newGuest is a VMI of the node with a pod whose socket is served.
func (w *world) newGuest(t *testing.T, name string, pod types.UID) *v1.VirtualMachineInstance {
	t.Helper()
	vmi := &v1.VirtualMachineInstance{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}}
	vmi.Status.Phase, vmi.Status.NodeName = v1.Running, nodeName
	must(t, w.client.Create(t.Context(), vmi))
	_, err := w.sessions.Ensure(t.Context(), session.Pod{UID: pod, Namespace: "default", Name: "virt-launcher-" + name, VMI: name, VMIUID: vmi.UID})
	must(t, err)
	return vmi
}

// runs waits until the launcher's state has come.
func (w *world) runs(t *testing.T, pod types.UID) {
	t.Helper()
	for deadline := time.Now().Add(patience); ; time.Sleep(10 * time.Millisecond) {
		if view := w.sessions.Session(pod).View(); view.Launcher != nil && view.State != nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatal("the launcher's state did not come")
		}
	}
}

func (w *world) url(path string) string { return "https://" + w.server.Address().String() + path }

func vmiPath(name, verb string) string {
	return "/v1/namespaces/default/virtualmachineinstances/" + name + "/" + verb
}

// do sends a request with a token and returns the code and the body.
func (w *world) do(t *testing.T, method, path, token, body string) (int, string) {
	t.Helper()
	for deadline := time.Now().Add(patience); ; time.Sleep(100 * time.Millisecond) {
		code, content := w.send(t, method, path, token, body)
		if !stoodStill(code, content) || time.Now().After(deadline) {
			return code, content
		}
	}
}

// stoodStill says whether a request came no further than to the handler because the launcher had no processor for long: it is sent again.
func stoodStill(code int, content string) bool {
	return code == http.StatusServiceUnavailable && strings.Contains(content, session.ErrSilent.Error())
}

// send does so once.
func (w *world) send(t *testing.T, method, path, token, body string) (int, string) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), method, w.url(path), strings.NewReader(body))
	must(t, err)
	if token != "" {
		request.Header.Set("Authorization", "Bearer "+token)
	}
	response, err := w.http.Do(request)
	must(t, err)
	defer response.Body.Close()
	content, err := io.ReadAll(response.Body)
	must(t, err)
	return response.StatusCode, string(content)
}

// refused wants a Status with this code and message.
func (w *world) refused(t *testing.T, method, path, token, body string, code int, message string) {
	t.Helper()
	got, content := w.do(t, method, path, token, body)
	var status metav1.Status
	if err := json.Unmarshal([]byte(content), &status); err != nil {
		t.Fatalf("%s %s: code %d with %q, which is no Status: %v", method, path, got, content, err)
	}
	if got != code || int(status.Code) != code || status.Kind != "Status" || !strings.Contains(status.Message, message) {
		t.Errorf("%s %s: code %d and %s, want %d and %q", method, path, got, content, code, message)
	}
}

// open makes a websocket.
func (w *world) open(t *testing.T, path string) *websocket.Conn {
	t.Helper()
	socket, code, content, err := w.dial(t, path)
	if err != nil {
		t.Fatalf("opening %s: %v, %d %s", path, err, code, content)
	}
	t.Cleanup(func() { _ = socket.Close() })
	must(t, socket.SetReadDeadline(time.Now().Add(patience)))
	return socket
}

// dial asks for a websocket; where there is none it returns the answer's code, 0 for none, and body.
func (w *world) dial(t *testing.T, path string) (socket *websocket.Conn, code int, content string, err error) {
	t.Helper()
	address := strings.Replace(w.url(path), "https", "wss", 1)
	for deadline := time.Now().Add(patience); ; time.Sleep(100 * time.Millisecond) {
		var response *http.Response
		socket, response, err = w.dialer.DialContext(t.Context(), address, http.Header{"Authorization": {"Bearer " + w.token}})
		code, content = 0, ""
		if response != nil {
			code = response.StatusCode
		}
		if err != nil && response != nil {
			data, _ := io.ReadAll(response.Body)
			content = string(data)
		}
		if err == nil || !stoodStill(code, content) || time.Now().After(deadline) {
			return socket, code, content, err
		}
	}
}

// hear reads text, in however many messages.
func hear(t *testing.T, socket *websocket.Conn, want string) {
	t.Helper()
	got := ""
	for len(got) < len(want) {
		_, message, err := socket.ReadMessage()
		if err != nil {
			t.Fatalf("heard %q, then %v; want %q", got, err, want)
		}
		got += string(message)
	}
	if got != want {
		t.Fatalf("heard %q, want %q", got, want)
	}
}

// sentAway wants the socket to end so.
func sentAway(t *testing.T, socket *websocket.Conn, want goodbye) {
	t.Helper()
	_, message, err := socket.ReadMessage()
	var closed *websocket.CloseError
	if !errors.As(err, &closed) || closed.Code != want.code || closed.Text != want.text {
		t.Errorf("read %q, %v; want the end with %d %s", message, err, want.code, want.text)
	}
}

func TestAPI(t *testing.T) {
	w := newWorld(t)
	w.newGuest(t, "away", "11111111-1f4a-4a3e-9d57-3a4a5f2f6a10")
	vmi := w.newGuest(t, "x", podUID)
	l := startLauncher(t, w.root, podUID, vmi.UID, wire.Version)
	l.expect(t, "running")
	w.runs(t, podUID)
	t.Run("virt-api alone is served", w.callersAreChecked)
	t.Run("what cannot be done is told with its code", w.refusals)
	t.Run("requests reach the launcher", func(t *testing.T) { w.requests(t, l) })
	t.Run("a console is taken over, a screen is shared", func(t *testing.T) { w.streamsAreCarried(t, l) })
	t.Run("a launcher of an earlier version is told from the rest", w.oldLauncher)
	t.Run("the end of the handler is told", func(t *testing.T) {
		socket := w.open(t, vmiPath("x", "console"))
		hear(t, socket, "console")
		w.stop()
		sentAway(t, socket, goodbyeRestart)
	})
}

func (w *world) callersAreChecked(t *testing.T) {
	if code, content := w.do(t, http.MethodGet, "/healthz", "", ""); code != http.StatusOK || content != "ok" {
		t.Errorf("healthz answers %d %q", code, content)
	}
	absent := vmiPath("absent", "pause") // what is there must not be learned
	for name, token := range map[string]string{
		"none": "", "not one": "abc", "for the API server": w.newToken(t, apiAccount), "for another": w.newToken(t, apiAccount, "vault"),
	} {
		t.Run("a token that is "+name, func(t *testing.T) { w.refused(t, http.MethodPut, absent, token, "", 401, "") })
	}
	t.Run("a token of another", func(t *testing.T) {
		w.refused(t, http.MethodPut, absent, w.newToken(t, "eve", names.HandlerAudience), "", 403, "not of system:serviceaccount:slipway:eve")
	})
	t.Run("a token that ended is found out within a minute", func(t *testing.T) {
		token := w.newToken(t, apiAccount, names.HandlerAudience)
		w.refused(t, http.MethodPut, absent, token, "", 404, "absent")
		account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: apiAccount}}
		must(t, w.client.Delete(t.Context(), account))
		w.refused(t, http.MethodPut, absent, token, "", 404, "absent")
		w.clock.Add(61)
		for deadline := time.Now().Add(patience); ; time.Sleep(100 * time.Millisecond) { // the API server has a cache of its own
			code, content := w.do(t, http.MethodPut, absent, token, "")
			if code == http.StatusUnauthorized {
				break
			}
			if time.Now().After(deadline) {
				t.Fatalf("the token of an account that is gone is answered with %d %s", code, content)
			}
			w.clock.Add(61)
		}
		w.token = w.newToken(t, apiAccount, names.HandlerAudience)
	})
}

func (w *world) refusals(t *testing.T) {
	w.refused(t, http.MethodPut, vmiPath("absent", "pause"), w.token, "", 404, `"absent" not found`)
	w.refused(t, http.MethodPut, vmiPath("x", "explode"), w.token, "", 404, "")
	w.refused(t, http.MethodGet, vmiPath("x", "pause"), w.token, "", 404, "")
	w.refused(t, http.MethodPut, vmiPath("away", "pause"), w.token, "", 503, "not connected")
	w.refused(t, http.MethodPut, vmiPath("x", "reset"), w.token, "", 500, "libvirt says no")
	w.refused(t, http.MethodPut, vmiPath("x", "freeze"), w.token, `{"unfreezeTimeout":"soon"}`, 400, "unfreezeTimeout")
	w.refused(t, http.MethodGet, vmiPath("x", "console"), w.token, "", 400, "websocket")
	w.refused(t, http.MethodGet, vmiPath("x", "vnc"), w.token, "", 400, "websocket")
	w.refused(t, http.MethodGet, vmiPath("x", "vnc/screenshot?moveCursor=perhaps"), w.token, "", 400, "moveCursor")
}

func (w *world) requests(t *testing.T, l *launcher) {
	accepted := func(verb, body string, says ...string) {
		t.Helper()
		if code, content := w.do(t, http.MethodPut, vmiPath("x", verb), w.token, body); code != http.StatusAccepted || content != "" {
			t.Errorf("%s: %d %s", verb, code, content)
		}
		l.expect(t, says...)
	}
	accepted("softreboot", "", "softReboot")
	if got := <-w.events.Events; got != "Normal SoftRebooted VirtualMachineInstance soft rebooted" {
		t.Errorf("the event is %q", got)
	}
	accepted("freeze", `{"unfreezeTimeout":"1m30s"}`, "freeze 90")
	accepted("freeze", "", "freeze 0")
	accepted("unfreeze", "", "unfreeze")
	for verb, want := range map[string]string{
		"guestosinfo": `"guestAgentVersion":"10.0.2"`, "userlist": `"items":[{"userName":"root"}]`, "filesystemlist": `"mountPoint":"/"`,
	} {
		if code, content := w.do(t, http.MethodGet, vmiPath("x", verb), w.token, ""); code != http.StatusOK || !strings.Contains(content, want) {
			t.Errorf("%s: %d %s", verb, code, content)
		}
	}
	code, content := w.do(t, http.MethodGet, vmiPath("x", "vnc/screenshot?moveCursor=false"), w.token, "")
	picture, err := png.Decode(strings.NewReader(content))
	if code != http.StatusOK || err != nil || picture.Bounds().Dx() != 640 {
		t.Errorf("screenshot: %d, %d bytes, %v", code, len(content), err)
	}
	accepted("pause", "", "pause")
	w.refused(t, http.MethodGet, vmiPath("x", "userlist"), w.token, "", 409, messageNoAgent) // it tells of none while paused
	accepted("unpause", "", "unpause")
}

func (w *world) streamsAreCarried(t *testing.T, l *launcher) {
	first := w.open(t, vmiPath("x", "console"))
	if first.Subprotocol() != subprotocol {
		t.Errorf("the sub-protocol is %q", first.Subprotocol())
	}
	l.expect(t, "connect console")
	hear(t, first, "console")
	must(t, first.WriteMessage(websocket.BinaryMessage, []byte("hello")))
	hear(t, first, "hello")

	second := w.open(t, vmiPath("x", "console"))
	sentAway(t, first, goodbyeTaken)
	l.expectBoth(t, "over console", "connect console") // it tells of the two connections as it comes to them
	hear(t, second, "console")
	must(t, second.Close())
	l.expect(t, "over console")

	w.dialer.Subprotocols = nil // clients that know of none
	defer func() { w.dialer.Subprotocols = []string{subprotocol} }()
	one, two := w.open(t, vmiPath("x", "vnc")), w.open(t, vmiPath("x", "vnc"))
	for _, screen := range []*websocket.Conn{one, two} {
		l.expect(t, "connect vnc")
		hear(t, screen, "vnc")
		must(t, screen.WriteMessage(websocket.BinaryMessage, []byte(strings.Repeat("x", 3*chunk))))
		hear(t, screen, strings.Repeat("x", 3*chunk))
	}
	must(t, one.Close())
	must(t, two.Close())
	l.expect(t, "over vnc", "over vnc")
	w.slotsAreTaken(t, l)
	w.portsOfGuests(t)
}

// slotsAreTaken redirects USB devices until there is no slot left.
func (w *world) slotsAreTaken(t *testing.T, l *launcher) {
	w.refused(t, http.MethodGet, vmiPath("x", "usbredir"), w.token, "", 409, "Not configured with USB Redirection")
	vmi := &v1.VirtualMachineInstance{}
	must(t, w.client.Get(t.Context(), client.ObjectKey{Namespace: "default", Name: "x"}, vmi))
	vmi.Spec.Domain.Devices.ClientPassthrough = &v1.ClientPassthroughDevices{}
	must(t, w.client.Update(t.Context(), vmi))
	w.refused(t, http.MethodGet, vmiPath("x", "usbredir"), w.token, "", 400, "websocket")
	var devices []*websocket.Conn
	for slot := range v1.UsbClientPassthroughMaxNumberOf {
		device := w.open(t, vmiPath("x", "usbredir"))
		name := string(protocol.ChannelUSB(slot))
		l.expect(t, "connect "+name)
		hear(t, device, name)
		devices = append(devices, device)
	}
	if _, code, content, err := w.dial(t, vmiPath("x", "usbredir")); err == nil || code != http.StatusConflict {
		t.Errorf("a fifth device is answered with %d %s, %v", code, content, err)
	}
	must(t, devices[1].Close())
	l.expect(t, "over usb1")
	for i, device := range devices {
		if i != 1 {
			must(t, device.Close())
		}
	}
}

func (w *world) oldLauncher(t *testing.T) {
	const pod = "22222222-1f4a-4a3e-9d57-3a4a5f2f6a10"
	vmi := w.newGuest(t, "old", pod)
	l := startLauncher(t, w.root, pod, vmi.UID, wire.VersionControl-1)
	l.expect(t, "running")
	w.runs(t, pod)
	w.refused(t, http.MethodPut, vmiPath("old", "pause"), w.token, "", 501, "restart the VM")
	w.refused(t, http.MethodGet, vmiPath("old", "guestosinfo"), w.token, "", 501, "restart the VM")
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
