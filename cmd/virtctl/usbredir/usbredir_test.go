package usbredir

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gorilla/websocket"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/slipway-vm/slipway/tests/fixture/standin"
)

// The server stands at the API server's place for the form of the requests alone.

const slot = "GET /apis/subresources.kubevirt.io/v1/namespaces/shop/virtualmachineinstances/web/usbredir"

// serveSlot is a guest that greets, and expects a greeting.
func serveSlot(conn *websocket.Conn) error {
	if err := standin.Send(conn, "hello guest\n"); err != nil {
		return err
	}
	if text, err := standin.Receive(conn); err != nil || text != "hello device\n" {
		return fmt.Errorf("received %q, %w", text, err)
	}
	_, _, err := conn.ReadMessage()
	if !websocket.IsCloseError(err, websocket.CloseNormalClosure) {
		return fmt.Errorf("the stream ended with %w", err)
	}
	return nil
}

func TestAClientOfTheUsers(t *testing.T) {
	server := standin.Start(t)
	server.On(slot, server.Stream(serveSlot))
	command := NewCommand(server)
	out, printed := io.Pipe()
	command.SetOut(printed)
	command.SetArgs([]string{"web", "--no-launch"})
	end := make(chan error, 1)
	go func() { end <- command.ExecuteContext(t.Context()) }()
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	address, found := strings.CutPrefix(strings.TrimSpace(line), "User can connect usbredir client at: ")
	if !found {
		t.Fatalf("it prints %q", line)
	}
	conn, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	greeting := make([]byte, 12)
	if _, err := io.ReadFull(conn, greeting); err != nil || string(greeting) != "hello guest\n" {
		t.Errorf("the guest greets with %q, %v", greeting, err)
	}
	if _, err := io.WriteString(conn, "hello device\n"); err != nil {
		t.Error(err)
	}
	_ = conn.Close()
	if err := <-end; err != nil {
		t.Errorf("it ended with %v", err)
	}
}

// install puts a program in the place of usbredirect.
func install(t *testing.T, script string) (folder string) {
	t.Helper()
	folder = t.TempDir()
	if err := os.WriteFile(filepath.Join(folder, program), []byte("#!/bin/sh\n"+script+"\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", folder)
	return folder
}

func call(server *standin.Server, args ...string) error {
	command := NewCommand(server)
	command.SilenceErrors, command.SilenceUsage = true, true
	command.SetOut(&bytes.Buffer{})
	command.SetArgs(args)
	return command.Execute()
}

func TestTheProgramIsRunForTheDevice(t *testing.T) {
	server := standin.Start(t)
	server.On(slot, server.Stream(func(conn *websocket.Conn) error { _, _, _ = conn.ReadMessage(); return nil }))
	folder := install(t, `echo "$@" > "${0%/*}/told"`)
	if err := call(server, "0951:1666", "web"); err != nil {
		t.Fatal(err)
	}
	told, err := os.ReadFile(filepath.Join(folder, "told"))
	if err != nil || !strings.HasPrefix(string(told), "--device 0951:1666 --to 127.0.0.1:") {
		t.Errorf("it was called with %q, %v", told, err)
	}
}

func TestFailuresAreTold(t *testing.T) {
	server := standin.Start(t)
	t.Setenv("PATH", t.TempDir())
	if err := call(server, "02-03", "web"); err == nil || !strings.Contains(err.Error(), "Error on finding usbredirect in $PATH") {
		t.Errorf("without the program: %v", err)
	}
	install(t, "echo no such device; exit 3")
	server.On(slot, standin.Refuse(http.StatusConflict, metav1.StatusReasonConflict, "Not configured with USB Redirection"))
	if err := call(server, "02-03", "web"); err == nil || err.Error() != "Can't access VMI web: Not configured with USB Redirection" {
		t.Errorf("without slots: %v", err)
	}
	server.On(slot, server.Stream(func(conn *websocket.Conn) error { _, _, _ = conn.ReadMessage(); return nil }))
	if err := call(server, "02-03", "web"); err == nil || !strings.Contains(err.Error(), "no such device") {
		t.Errorf("without the device: %v", err)
	}
	for _, args := range [][]string{{"web"}, {"02-03", "web", "--no-launch"}} {
		if err := call(server, args...); err == nil || !strings.Contains(err.Error(), "arg(s)") {
			t.Errorf("%v: %v", args, err)
		}
	}
}
