package main

import (
	"context"
	"io"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/slipway-vm/slipway/runtime/protocol/wire"
)

func TestConnectWaitsForTheSocket(t *testing.T) {
	dir := t.TempDir()
	connected := make(chan error, 1)
	go func() {
		socket, err := connect(t.Context(), dir)
		if err == nil {
			err = socket.Close()
		}
		connected <- err
	}()
	select {
	case err := <-connected:
		t.Fatalf("connected to nobody: %v", err)
	case <-time.After(50 * time.Millisecond):
	}
	path := filepath.Join(dir, "handler.sock")
	listener, err := net.ListenUnix("unix", &net.UnixAddr{Name: path + ".new", Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	if err := os.Rename(path+".new", path); err != nil {
		t.Fatal(err)
	}
	if err := <-connected; err != nil {
		t.Error(err)
	}
}

func TestTheImageArrivesWithTheHello(t *testing.T) {
	dir := t.TempDir()
	listener, err := net.ListenUnix("unix", &net.UnixAddr{Name: filepath.Join(dir, "handler.sock"), Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	got := make(chan string, 1)
	go func() {
		socket, err := listener.AcceptUnix()
		if err != nil {
			return
		}
		conn := wire.NewConn(socket, func(_ context.Context, request wire.Request) (any, error) {
			var hello wire.Hello
			if err := request.Decode(&hello); err != nil || len(request.Files) != 1 {
				return nil, err
			}
			defer request.Files[0].Close()
			data, err := io.ReadAll(request.Files[0])
			got <- hello.Volume + " " + string(data)
			return wire.Hello{}, err
		})
		_ = conn.Serve(t.Context())
	}()
	image := filepath.Join(dir, "disk")
	if err := os.WriteFile(image, []byte("bytes"), 0o644); err != nil {
		t.Fatal(err)
	}
	file, err := os.Open(image)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if err := send(t.Context(), dir, "root", file); err != nil {
		t.Fatal(err)
	}
	if received := <-got; received != "root bytes" {
		t.Errorf("the handler got %q", received)
	}
}
