package uploadserver

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/slipway-vm/slipway/internal/certs"
	"github.com/slipway-vm/slipway/internal/transfer"
)

// farewell is for how long the sender is given to read that its image is whole.
const farewell = 10 * time.Second

// leaveWithin is for how long what was written of an image that will not be whole may be taken away; the pod is killed
// five seconds after it was told to go. hasty is what its sender then has to hear of one that was finished.
const (
	leaveWithin = 4 * time.Second
	hasty       = 500 * time.Millisecond
)

// serve takes images at the options' address until one is whole, or ctx ends; what is not whole by then is taken away.
func serve(ctx context.Context, server *Server, options Options) (transfer.Result, error) {
	config, err := tlsConfig(options.CertDir)
	if err != nil {
		return transfer.Result{}, err
	}
	options.TLS.Guard(config)
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", options.Address)
	if err != nil {
		return transfer.Result{}, fmt.Errorf("starting the upload server: %w", err)
	}
	requests, cancel := context.WithCancel(context.WithoutCancel(ctx))
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
		server.leave()
		select {
		case result := <-server.Finished():
			shut(ctx, web, server.farewell)
			return result, nil
		default:
		}
		_ = web.Close()
		return transfer.Result{}, fmt.Errorf("serving uploads: %w", ctx.Err())
	case result := <-server.Finished():
		shut(ctx, web, server.farewell)
		return result, nil
	}
}

// shut ends web once its requests are answered, or the time for that, farewell, is over, which is short once ctx has ended:
// the pod is killed then, and a program that is killed has said nothing. However it goes, the disk is whole, and its sender
// may have heard so.
func shut(ctx context.Context, web *http.Server, farewell time.Duration) {
	patient, cancel := context.WithTimeout(context.WithoutCancel(ctx), farewell)
	defer cancel()
	stop := context.AfterFunc(ctx, func() {
		select {
		case <-time.After(hasty):
			cancel()
		case <-patient.Done():
		}
	})
	defer stop()
	if err := web.Shutdown(patient); err != nil {
		log.FromContext(ctx).Info("The upload server ends in haste", "because", err.Error())
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
		Certificates: []tls.Certificate{cert}, ClientCAs: clients, ClientAuth: tls.VerifyClientCertIfGiven,
		NextProtos: []string{"http/1.1"}, MinVersion: tls.VersionTLS12,
	}, nil
}
