package wire

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// pair are the two ends of a connection, of which the far one answers with handler.
func pair(t *testing.T, handler Handler) (near, far *Conn) {
	t.Helper()
	listener, err := net.ListenUnix("unix", &net.UnixAddr{Name: filepath.Join(t.TempDir(), "sock"), Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = listener.Close() }()
	nearEnd, err := net.DialUnix("unix", nil, listener.Addr().(*net.UnixAddr))
	if err != nil {
		t.Fatal(err)
	}
	farEnd, err := listener.AcceptUnix()
	if err != nil {
		t.Fatal(err)
	}
	near, far = NewConn(nearEnd, nil), NewConn(farEnd, handler)
	t.Cleanup(func() { _, _ = nearEnd.Close(), farEnd.Close() })
	return near, far
}

// serve serves both ends until the test ends.
func serve(t *testing.T, conns ...*Conn) {
	t.Helper()
	for _, conn := range conns {
		go func() { _ = conn.Serve(t.Context()) }()
	}
}

func TestARequestIsAnswered(t *testing.T) {
	near, far := pair(t, func(_ context.Context, request Request) (any, error) {
		var word string
		if err := request.Decode(&word); err != nil {
			return nil, err
		}
		if word == "no" {
			return nil, errors.New("refused")
		}
		text, err := io.ReadAll(request.Files[0])
		return word + string(text), err
	})
	serve(t, near, far)
	path := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(path, []byte(" and a file"), 0o600); err != nil {
		t.Fatal(err)
	}
	file, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	var answer string
	if err := near.Call(t.Context(), "ask", "a word", &answer, file); err != nil || answer != "a word and a file" {
		t.Errorf("got %q, %v", answer, err)
	}
	if err := near.Call(t.Context(), "ask", "no", nil); err == nil || !strings.Contains(err.Error(), "refused") {
		t.Errorf("got %v, want the other side's words", err)
	}
}

// However far a call has come when the other side goes, it ends with ErrClosed.
func TestACallToOneThatGoesIsClosed(t *testing.T) {
	for range 500 {
		gone := make(chan *Conn, 1)
		near, far := pair(t, func(context.Context, Request) (any, error) { return nil, (<-gone).Close() })
		gone <- far
		serve(t, near, far)
		for {
			err := near.Call(t.Context(), "ask", strings.Repeat("x", 10_000), nil)
			if errors.Is(err, ErrClosed) {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
		}
	}
}

func TestAMessageOutOfBoundsIsNotSent(t *testing.T) {
	near, _ := pair(t, nil)
	if err := near.Notify("tell", strings.Repeat("x", maxFrame)); err == nil || !strings.Contains(err.Error(), "over the bound") {
		t.Errorf("got %v", err)
	}
}
