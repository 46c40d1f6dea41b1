package driver

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
)

// Listen makes the driver's unix socket at path anew.
func (d *Driver) Listen(ctx context.Context, path string) (net.Listener, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o750); err != nil {
		return nil, fmt.Errorf("making the directory of the driver's socket: %w", err)
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("removing the driver's old socket: %w", err)
	}
	var listen net.ListenConfig
	listener, err := listen.Listen(ctx, "unix", path)
	if err != nil {
		return nil, fmt.Errorf("listening at the driver's socket: %w", err)
	}
	return listener, nil
}

// Serve serves the driver until ctx ends.
func (d *Driver) Serve(ctx context.Context, listener net.Listener) error {
	server := grpc.NewServer(grpc.UnaryInterceptor(d.logged))
	csi.RegisterIdentityServer(server, d)
	csi.RegisterControllerServer(server, d)
	csi.RegisterNodeServer(server, d)
	stop := context.AfterFunc(ctx, server.Stop)
	defer stop()
	if err := server.Serve(listener); err != nil && ctx.Err() == nil {
		return fmt.Errorf("serving the driver: %w", err)
	}
	return nil
}

func (d *Driver) logged(ctx context.Context, req any, info *grpc.UnaryServerInfo, handle grpc.UnaryHandler) (any, error) {
	response, err := handle(ctx, req)
	if err != nil {
		d.options.Log.Error(err, "A call of the kubelet failed", "method", info.FullMethod)
	} else {
		d.options.Log.V(1).Info("Served a call of the kubelet", "method", info.FullMethod)
	}
	return response, err
}
