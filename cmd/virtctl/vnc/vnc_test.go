package vnc

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/gorilla/websocket"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/slipway-vm/slipway/tests/fixture/standin"
)

// The server stands at the API server's place for the form of the requests alone.

const (
	screen     = "GET /apis/subresources.kubevirt.io/v1/namespaces/shop/virtualmachineinstances/web/vnc"
	screenshot = screen + "/screenshot"
)

// serveScreen is a guest that greets as VNC servers do, and expects the same.
func serveScreen(conn *websocket.Conn) error {
	if err := standin.Send(conn, "RFB 003.008\n"); err != nil {
		return err
	}
	if text, err := standin.Receive(conn); err != nil || text != "RFB 003.003\n" {
		return fmt.Errorf("received %q, %w", text, err)
	}
	_, _, err := conn.ReadMessage()
	if !websocket.IsCloseError(err, websocket.CloseNormalClosure) {
		return fmt.Errorf("the stream ended with %w", err)
	}
	return nil
}

func TestProxyOnly(t *testing.T) {
	server := standin.Start(t)
	server.On(screen, server.Stream(serveScreen))
	command := NewCommand(server)
	out, printed := io.Pipe()
	command.SetOut(printed)
	command.SetArgs([]string{"web", "--proxy-only"})
	end := make(chan error, 1)
	go func() { end <- command.ExecuteContext(t.Context()) }()
	var answer struct{ Port int }
	if err := json.NewDecoder(out).Decode(&answer); err != nil {
		t.Fatal(err)
	}
	conn, err := net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", answer.Port))
	if err != nil {
		t.Fatal(err)
	}
	greeting := make([]byte, 12)
	if _, err := io.ReadFull(conn, greeting); err != nil || string(greeting) != "RFB 003.008\n" {
		t.Errorf("the guest greets with %q, %v", greeting, err)
	}
	if _, err := io.WriteString(conn, "RFB 003.003\n"); err != nil {
		t.Error(err)
	}
	_ = conn.Close()
	if err := <-end; err != nil {
		t.Errorf("it ended with %v", err)
	}
}

func TestAViewerIsStarted(t *testing.T) {
	server := standin.Start(t)
	server.On(screen, server.Stream(func(conn *websocket.Conn) error { _, _, _ = conn.ReadMessage(); return nil }))
	folder := t.TempDir()
	program, told := filepath.Join(folder, "viewer"), filepath.Join(folder, "told")
	if err := os.WriteFile(program, []byte("#!/bin/sh\necho \"$@\" > "+told+"\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	command := NewCommand(server)
	command.SetArgs([]string{"web", "--vnc-type", "remote-viewer", "--vnc-path", program, "--port", "0"})
	if err := command.ExecuteContext(t.Context()); err != nil {
		t.Fatal(err)
	}
	if data, err := os.ReadFile(told); err != nil || !strings.HasPrefix(string(data), "vnc://127.0.0.1:") {
		t.Errorf("%v: the viewer was started with %q", err, data)
	}
}

func TestViewers(t *testing.T) {
	for kind, want := range map[string]string{tiger: "a:1", chicken: "a:1", remoteViewer: "vnc://a:1", realVNC: "a:1 -WarnUnencrypted=0 -Shared=0 -ShareFiles=0"} {
		if got := strings.Join(viewer{kind: kind}.arguments("a:1"), " "); got != want {
			t.Errorf("%s: %s", kind, got)
		}
	}
	if _, err := (viewer{kind: "tight"}).find(); err == nil || !strings.Contains(err.Error(), `"tight" is not known`) {
		t.Errorf("got %v", err)
	}
	t.Setenv("PATH", t.TempDir())
	if _, err := installed("linux"); err == nil || !strings.Contains(err.Error(), "could not find remote-viewer or vncviewer binary in $PATH") {
		t.Errorf("got %v", err)
	}
}

func TestScreenshot(t *testing.T) {
	server := standin.Start(t)
	server.On(screenshot, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "image/png")
		_, _ = io.WriteString(w, "\x89PNG")
	})
	run := func(args ...string) (string, error) {
		command := NewCommand(server)
		command.SilenceErrors, command.SilenceUsage = true, true
		var out bytes.Buffer
		command.SetOut(&out)
		command.SetArgs(append([]string{"screenshot", "web"}, args...))
		err := command.Execute()
		return out.String(), err
	}
	file := filepath.Join(t.TempDir(), "web.png")
	if _, err := run("-f", file, "-m"); err != nil {
		t.Fatal(err)
	}
	if data, err := os.ReadFile(file); err != nil || string(data) != "\x89PNG" {
		t.Errorf("%v, %q", err, data)
	}
	if out, err := run("-f", "-"); err != nil || out != "\x89PNG" {
		t.Errorf("%v, %q", err, out)
	}
	for _, want := range []string{screenshot + "?moveCursor=true", screenshot + "?moveCursor=false"} {
		if !slices.Contains(server.Seen(), want) {
			t.Errorf("sent %q, want %q", server.Seen(), want)
		}
	}
	if _, err := run(); err == nil || !strings.Contains(err.Error(), `"file" not set`) {
		t.Errorf("got %v", err)
	}
	server.On(screenshot, standin.Refuse(http.StatusBadRequest, metav1.StatusReasonBadRequest, "No graphics devices are present."))
	if _, err := run("-f", "-"); err == nil || err.Error() != "Can't access VMI web: No graphics devices are present." {
		t.Errorf("got %v", err)
	}
}
