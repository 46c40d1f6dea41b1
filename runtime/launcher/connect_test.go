package launcher

import (
	"context"
	"io"
	"net"
	"testing"
)

// pipe is a connected pair of stream sockets.
func pipe(t *testing.T) (near, far net.Conn) {
	t.Helper()
	listener, err := net.Listen("unix", t.TempDir()+"/socket")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	if near, err = net.Dial("unix", listener.Addr().String()); err != nil {
		t.Fatal(err)
	}
	if far, err = listener.Accept(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = near.Close()
		_ = far.Close()
	})
	return near, far
}

func TestSpliceCarriesBothWaysUntilOneSideEnds(t *testing.T) {
	for name, end := range map[string]func(client, device net.Conn, cancel func()){
		"the client":  func(client, _ net.Conn, _ func()) { _ = client.Close() },
		"the device":  func(_, device net.Conn, _ func()) { _ = device.Close() },
		"its context": func(_, _ net.Conn, cancel func()) { cancel() },
	} {
		t.Run(name+" ends it", func(t *testing.T) {
			client, a := pipe(t)
			b, device := pipe(t)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			done := make(chan struct{})
			go func() {
				splice(ctx, a, b)
				close(done)
			}()
			for _, way := range [][2]net.Conn{{client, device}, {device, client}} {
				if _, err := io.WriteString(way[0], "hello"); err != nil {
					t.Fatal(err)
				}
				got := make([]byte, 5)
				if _, err := io.ReadFull(way[1], got); err != nil || string(got) != "hello" {
					t.Fatalf("got %q, %v", got, err)
				}
			}
			end(client, device, cancel)
			<-done
			for _, side := range []net.Conn{client, device} {
				if n, err := side.Read(make([]byte, 1)); err == nil {
					t.Errorf("a side still reads %d bytes", n)
				}
			}
		})
	}
}
