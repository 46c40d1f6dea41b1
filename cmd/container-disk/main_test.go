package main

import (
	"context"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/slipway-vm/slipway/runtime/protocol/wire"
)

func TestOpenImage(t *testing.T) {
	cases := map[string]struct {
		files map[string]string // a value of "-> x" is a link to x
		path  string
		want  string
		err   string
	}{
		"the only file under /disk":                {files: map[string]string{"disk/a.qcow2": "a", "etc/passwd": "p"}, want: "a"},
		"a file by its path":                       {files: map[string]string{"disk/a": "a", "disk/b": "b"}, path: "/disk/b", want: "b"},
		"a link inside the image":                  {files: map[string]string{"disk/a": "a", "b": "-> disk/a"}, path: "/b", want: "a"},
		"hidden files do not count":                {files: map[string]string{"disk/a": "a", "disk/.wh": "w"}, want: "a"},
		"several files":                            {files: map[string]string{"disk/a": "a", "disk/b": "b"}, err: "several files under /disk (a, b)"},
		"no /disk at all":                          {files: map[string]string{"etc/passwd": "p"}, err: "no file under /disk"},
		"a path that is not there":                 {files: map[string]string{"disk/a": "a"}, path: "/disk/x", err: "has no file /disk/x"},
		"a folder":                                 {files: map[string]string{"disk/a": "a"}, path: "/disk", err: "no regular file"},
		"an empty file":                            {files: map[string]string{"disk/a": ""}, err: "is empty"},
		"a path out of the image":                  {files: map[string]string{"disk/a": "a"}, path: "../../etc/passwd", err: "escapes"},
		"a link out of the image":                  {files: map[string]string{"disk/a": "-> ../../outside"}, path: "/disk/a", err: "escapes"},
		"a link out of the image under /disk only": {files: map[string]string{"disk/a": "-> /etc/passwd"}, err: "no file under /disk"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			root := t.TempDir()
			for path, content := range c.files {
				path = filepath.Join(root, path)
				if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
					t.Fatal(err)
				}
				var err error
				if target, link := strings.CutPrefix(content, "-> "); link {
					err = os.Symlink(target, path)
				} else {
					err = os.WriteFile(path, []byte(content), 0o644)
				}
				if err != nil {
					t.Fatal(err)
				}
			}
			file, err := openImage(root, c.path)
			if c.err != "" {
				if err == nil || !strings.Contains(err.Error(), c.err) {
					t.Fatalf("error %v, want one with %q", err, c.err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			defer file.Close()
			data, err := io.ReadAll(file)
			if err != nil || string(data) != c.want {
				t.Errorf("read %q, %v; want %q", data, err, c.want)
			}
		})
	}
}

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
