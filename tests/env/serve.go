package env

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"time"
)

// Serve serves handler to the cluster's pods until ctx ends, and returns the URL of its root.
// It listens on the local node's address, or for an existing cluster on SERVE_ADDRESS.
func (c *Cluster) Serve(ctx context.Context, handler http.Handler) (string, error) {
	address := c.Local.NodeIP
	if c.Existing {
		address = os.Getenv("SERVE_ADDRESS")
	}
	if address == "" {
		return "", errors.New("an existing cluster's pods must reach the disk: set SERVE_ADDRESS to an address of this machine that they reach, or IMAGE_URL to a disk elsewhere")
	}
	var config net.ListenConfig
	listener, err := config.Listen(ctx, "tcp", net.JoinHostPort(address, "0"))
	if err != nil {
		return "", fmt.Errorf("listening on %s: %w", address, err)
	}
	server := &http.Server{Handler: handler, ReadHeaderTimeout: time.Minute}
	context.AfterFunc(ctx, func() { _ = server.Close() })
	go func() { _ = server.Serve(listener) }()
	return "http://" + listener.Addr().String(), nil
}
