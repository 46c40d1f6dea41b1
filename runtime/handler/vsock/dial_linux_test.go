package vsock

import (
	"context"
	"errors"
	"io"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestConnections carries bytes over sockets of another family in the same way.
func TestConnections(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	listener, err := net.Listen("unix", path)
	must(t, err)
	defer listener.Close()
	go func() {
		peer, err := listener.Accept()
		if err == nil {
			_, _ = io.Copy(peer, peer)
			_ = peer.Close()
		}
	}()
	conn, err := connect(t.Context(), socket(t, unix.AF_UNIX), &unix.SockaddrUnix{Name: path}, Address{CID: 3, Port: 22})
	must(t, err)
	if conn.RemoteAddr().String() != "3:22" || conn.RemoteAddr().Network() != "vsock" || conn.LocalAddr().String() != "2:0" {
		t.Errorf("it is from %s to %s", conn.LocalAddr(), conn.RemoteAddr())
	}
	_, err = io.WriteString(conn, "hello")
	must(t, err)
	got := make([]byte, 5)
	_, err = io.ReadFull(conn, got)
	must(t, err)
	if string(got) != "hello" {
		t.Errorf("heard %q", got)
	}
	reading := make(chan error, 1)
	go func() {
		_, err := conn.Read(got)
		reading <- err
	}()
	must(t, conn.Close())
	select {
	case err := <-reading:
		if err == nil {
			t.Error("a closed connection is read from")
		}
	case <-time.After(time.Minute):
		t.Error("a reader is not woken by the end")
	}
}

// TestConnectionsThatTakeTheirTime uses TCP, which is connected later, to nobody and to a listener.
func TestConnectionsThatTakeTheirTime(t *testing.T) {
	listener, err := net.Listen("tcp4", "127.0.0.1:0")
	must(t, err)
	port := listener.Addr().(*net.TCPAddr).Port
	local := &unix.SockaddrInet4{Port: port, Addr: [4]byte{127, 0, 0, 1}}
	conn, err := connect(t.Context(), socket(t, unix.AF_INET), local, Address{CID: 3})
	must(t, err)
	must(t, conn.Close())
	must(t, listener.Close())
	deaf := socket(t, unix.AF_INET) // which has a port, so that nobody else gets it, and does not listen
	defer unix.Close(deaf)
	must(t, unix.Bind(deaf, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}))
	nobody, err := unix.Getsockname(deaf)
	must(t, err)
	if _, err := connect(t.Context(), socket(t, unix.AF_INET), nobody, Address{CID: 3}); !errors.Is(err, unix.ECONNREFUSED) {
		t.Errorf("nobody is there: %v", err)
	}
}

// TestWhoeverAskedIsGone connects with a listener that takes nobody any more.
func TestWhoeverAskedIsGone(t *testing.T) {
	full := socket(t, unix.AF_INET)
	defer unix.Close(full)
	must(t, unix.Bind(full, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}))
	must(t, unix.Listen(full, 0))
	address, err := unix.Getsockname(full)
	must(t, err)
	for range 10 {
		ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
		defer cancel()
		conn, err := connect(ctx, socket(t, unix.AF_INET), address, Address{CID: 3, Port: 22})
		if err != nil {
			if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "3:22") {
				t.Errorf("got %v", err)
			}
			return
		}
		defer conn.Close()
	}
	t.Error("it takes everybody")
}

func socket(t *testing.T, family int) int {
	t.Helper()
	fd, err := unix.Socket(family, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	must(t, err)
	return fd
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
