package link

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/slipway-vm/slipway/runtime/protocol"
	"github.com/slipway-vm/slipway/runtime/protocol/wire"
)

// handler is the other side: a real socket that can go away and come back.
type handler struct {
	t        *testing.T
	path     string
	listener *net.UnixListener
	states   chan protocol.State
	mu       sync.Mutex
	conns    []*wire.Conn
}

func newHandler(t *testing.T, dir string) *handler {
	t.Helper()
	return &handler{t: t, path: filepath.Join(dir, "handler.sock"), states: make(chan protocol.State, 64)}
}

// appear makes the socket.
func (h *handler) appear() {
	h.t.Helper()
	listener, err := net.ListenUnix("unix", &net.UnixAddr{Name: h.path, Net: "unix"})
	if err != nil {
		h.t.Fatal(err)
	}
	h.listener = listener
	go func() {
		for {
			socket, err := listener.AcceptUnix()
			if err != nil {
				return
			}
			conn := wire.NewConn(socket, h.handle)
			h.mu.Lock()
			h.conns = append(h.conns, conn)
			h.mu.Unlock()
			go func() { _ = conn.Serve(h.t.Context()) }()
		}
	}()
}

func (h *handler) handle(_ context.Context, request wire.Request) (any, error) {
	if request.Type == wire.TypeHello {
		return wire.Hello{Version: wire.Version}, nil
	}
	var state protocol.State
	err := request.Decode(&state)
	h.states <- state
	return nil, err
}

// vanish ends the handler; a killed one leaves its socket's file behind.
func (h *handler) vanish(killed bool) {
	h.listener.SetUnlinkOnClose(!killed)
	_ = h.listener.Close()
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, conn := range h.conns {
		_ = conn.Close()
	}
	h.conns = nil
}

func (h *handler) wants(reason string) {
	h.t.Helper()
	deadline := time.After(time.Minute)
	for {
		select {
		case state := <-h.states:
			if state.Reason == reason {
				return
			}
		case <-deadline:
			h.t.Fatalf("the state %s was not told", reason)
		}
	}
}

func run(t *testing.T) (*Link, *handler) {
	t.Helper()
	dir := t.TempDir()
	link := New(Options{
		Dir: dir, Name: "handler.sock", Hello: wire.Hello{Version: wire.Version, Role: wire.RoleLauncher},
		Handler: func(context.Context, wire.Request) (any, error) { return nil, nil }, Log: slog.New(slog.DiscardHandler),
	})
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() {
		if err := link.Run(ctx); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(func() { cancel(); running.Wait() })
	return link, newHandler(t, dir)
}

func running(reason string) protocol.State {
	return protocol.State{Phase: protocol.PhaseRunning, Reason: reason}
}

func TestStatesReachAHandlerThatComesAndGoes(t *testing.T) {
	link, handler := run(t)
	link.Publish(running("before"))
	handler.appear()
	handler.wants("before")
	link.Publish(running("during"))
	handler.wants("during")
	for name, killed := range map[string]bool{"stopped": false, "killed": true} {
		handler.vanish(killed)
		link.Publish(running("lost"))
		link.Publish(running(name))
		if killed {
			if err := os.Remove(handler.path); err != nil {
				t.Fatal(err)
			}
		}
		handler.appear()
		handler.wants(name)
	}
	handler.vanish(false)
}

func TestFlushWaitsForAHandler(t *testing.T) {
	link, handler := run(t)
	handler.appear()
	link.Publish(running("up"))
	handler.wants("up")
	handler.vanish(false)
	done := make(chan error, 1)
	go func() { done <- link.Flush(t.Context(), running("last")) }()
	select {
	case err := <-done:
		t.Fatalf("flushed without a handler: %v", err)
	case <-time.After(50 * time.Millisecond):
	}
	handler.appear()
	handler.wants("last")
	if err := <-done; err != nil {
		t.Error(err)
	}
	handler.vanish(false)
}

func TestFlushGivesUp(t *testing.T) {
	link, _ := run(t)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if err := link.Flush(ctx, running("last")); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("error %v", err)
	}
}
