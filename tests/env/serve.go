package env

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"
)

// Serve serves handler to the cluster's pods until ctx ends, and returns the URL of its root.
// It listens on the local node's address.
func (c *Cluster) Serve(ctx context.Context, handler http.Handler) (string, error) {
	if c.Existing {
		return "", errors.New("an existing cluster's pods may not reach this machine; give the URL of an image that they reach (IMAGE_URL)")
	}
	var config net.ListenConfig
	listener, err := config.Listen(ctx, "tcp", net.JoinHostPort(c.Local.NodeIP, "0"))
	if err != nil {
		return "", fmt.Errorf("listening on the node's address: %w", err)
	}
	server := &http.Server{Handler: handler, ReadHeaderTimeout: time.Minute}
	context.AfterFunc(ctx, func() { _ = server.Close() })
	go func() { _ = server.Serve(listener) }()
	return "http://" + listener.Addr().String(), nil
}
