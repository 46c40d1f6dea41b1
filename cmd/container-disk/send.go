package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"time"

	"github.com/fsnotify/fsnotify"

	"github.com/slipway-vm/slipway/internal/names"
	"github.com/slipway-vm/slipway/runtime/protocol/wire"
	"github.com/slipway-vm/slipway/runtime/volume/imagefile"
)

// retryPause is the time until a socket on which nobody answered is tried again.
const retryPause = 100 * time.Millisecond

// run sends the image of volume to the handler of this pod's node.
func run(ctx context.Context, volume, path string) error {
	if volume == "" {
		return errors.New("--volume is missing; give the name of the VMI's volume")
	}
	image, err := imagefile.Open("/", path)
	if err != nil {
		return err
	}
	defer func() { _ = image.Close() }()
	return send(ctx, names.LauncherSocketDir, volume, image)
}

// send hands the open image to the handler whose socket is in dir.
func send(ctx context.Context, dir, volume string, image *os.File) error {
	socket, err := connect(ctx, dir)
	if err != nil {
		return err
	}
	conn := wire.NewConn(socket, func(context.Context, wire.Request) (any, error) {
		return nil, errors.New("container-disk takes no requests")
	})
	go func() { _ = conn.Serve(ctx) }() // its end fails the call below
	hello := wire.Hello{Version: wire.Version, Role: wire.RoleContainerDisk, Volume: volume}
	if err := conn.Call(ctx, wire.TypeHello, hello, nil, image); err != nil {
		return fmt.Errorf("handing the disk image to virt-handler: %w", err)
	}
	return conn.Close()
}

// connect waits for the handler's socket in dir, which may be made anew at any time.
func connect(ctx context.Context, dir string) (*net.UnixConn, error) {
	watcher, err := fsnotify.NewWatcher()
	if err != nil {
		return nil, fmt.Errorf("watching for virt-handler's socket: %w", err)
	}
	defer func() { _ = watcher.Close() }()
	if err := watcher.Add(dir); err != nil {
		return nil, fmt.Errorf("watching for virt-handler's socket: %w", err)
	}
	var dialer net.Dialer
	for {
		socket, err := dialer.DialContext(ctx, "unix", filepath.Join(dir, names.LauncherSocketName))
		if err == nil {
			return socket.(*net.UnixConn), nil
		}
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("waiting for virt-handler's socket in %s: %w", dir, errors.Join(ctx.Err(), err))
		case <-watcher.Events:
		case <-time.After(retryPause):
		}
	}
}
