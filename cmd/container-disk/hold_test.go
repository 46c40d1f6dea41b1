package main

import (
	"context"
	"net"
	"path/filepath"
	"testing"
	"time"

	"github.com/slipway-vm/slipway/internal/names"
	"github.com/slipway-vm/slipway/runtime/protocol/wire"
)

// TestAHolderComesBackToEveryHandler ends the handler's side twice, at any moment after the hello.
func TestAHolderComesBackToEveryHandler(t *testing.T) {
	dir := t.TempDir()
	listener, err := net.ListenUnix("unix", &net.UnixAddr{Name: filepath.Join(dir, names.LauncherSocketName), Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	ctx, stop := context.WithTimeout(t.Context(), 5*time.Minute)
	defer stop()
	done := make(chan error, 1)
	go func() { done <- hold(ctx, dir, "data") }()
	if err := listener.SetDeadline(time.Now().Add(5 * time.Minute)); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		socket, err := listener.AcceptUnix()
		if err != nil {
			t.Fatalf("waiting for the holder: %v", err)
		}
		hellos := make(chan wire.Hello, 1)
		conn := wire.NewConn(socket, func(_ context.Context, request wire.Request) (any, error) {
			var hello wire.Hello
			err := request.Decode(&hello)
			hellos <- hello
			return wire.Hello{Version: wire.Version}, err
		})
		go func() { _ = conn.Serve(ctx) }()
		if got := <-hellos; got.Role != wire.RoleVolume || got.Volume != "data" {
			t.Errorf("got %+v", got)
		}
		_ = conn.Close()
	}
	stop()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

func TestAHolderNeedsItsVolumesName(t *testing.T) {
	if err := hold(t.Context(), t.TempDir(), ""); err == nil {
		t.Error("got no error")
	}
}
