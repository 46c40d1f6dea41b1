package uploadserver

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"github.com/slipway-vm/slipway/internal/certs"
	"github.com/slipway-vm/slipway/internal/transfer"
)

// farewell is for how long the sender is given to read that its image is whole.
const farewell = 10 * time.Second

// serve takes images at the options' address until one is whole, or ctx ends.
func serve(ctx context.Context, server *Server, options Options) (transfer.Result, error) {
	config, err := tlsConfig(options.CertDir)
	if err != nil {
		return transfer.Result{}, err
	}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", options.Address)
	if err != nil {
		return transfer.Result{}, fmt.Errorf("starting the upload server: %w", err)
	}
	requests, cancel := context.WithCancel(ctx)
	defer cancel()
	web := &http.Server{
		Handler: server, TLSConfig: config, ReadHeaderTimeout: 30 * time.Second, IdleTimeout: time.Minute,
		BaseContext: func(net.Listener) context.Context { return requests },
		Protocols:   new(http.Protocols),
	}
	web.Protocols.SetHTTP1(true) // one connection has one image
	ended := make(chan error, 1)
	go func() { ended <- web.ServeTLS(listener, "", "") }()
	select {
	case err := <-ended:
		return transfer.Result{}, fmt.Errorf("serving uploads: %w", err)
	case <-ctx.Done():
		select {
		case result := <-server.Finished():
			return result, nil
		default:
		}
		_ = web.Close() // what was not whole is lost with the connection
		return transfer.Result{}, fmt.Errorf("serving uploads: %w", ctx.Err())
	case result := <-server.Finished():
		grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), farewell)
		defer cancel()
		if err := web.Shutdown(grace); err != nil && !errors.Is(err, context.DeadlineExceeded) {
			return result, fmt.Errorf("ending the upload server: %w", err)
		}
		return result, nil
	}
}

// tlsConfig reads dir. A client may show no certificate, for health checks have none; one that is
// shown is verified.
func tlsConfig(dir string) (*tls.Config, error) {
	cert, err := tls.LoadX509KeyPair(filepath.Join(dir, certs.KeyCert), filepath.Join(dir, certs.KeyKey))
	if err != nil {
		return nil, fmt.Errorf("reading the upload server's certificate: %w", err)
	}
	bundle, err := os.ReadFile(filepath.Join(dir, certs.KeyBundle))
	if err != nil {
		return nil, fmt.Errorf("reading whom to trust: %w", err)
	}
	clients := x509.NewCertPool()
	if !clients.AppendCertsFromPEM(bundle) {
		return nil, fmt.Errorf("reading whom to trust: %s holds no certificate", certs.KeyBundle)
	}
	return &tls.Config{
		Certificates: []tls.Certificate{cert}, ClientCAs: clients, ClientAuth: tls.VerifyClientCertIfGiven, MinVersion: tls.VersionTLS12,
	}, nil
}
