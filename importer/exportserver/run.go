package exportserver

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"path/filepath"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/slipway-vm/slipway/internal/certs"
	"github.com/slipway-vm/slipway/internal/tlspolicy"
	"github.com/slipway-vm/slipway/internal/vmexport"
)

// farewell is for how long downloads may go on after the server was told to end.
const farewell = 3 * time.Second

// Options configure Run.
type Options struct {
	Volumes
	// Address is where volumes are given out, with TLS.
	Address string
	// CertDir holds tls.crt and tls.key.
	CertDir string
	// TokenFile has the token.
	TokenFile string
	// Deadline is when the export ends; zero for never.
	Deadline time.Time
	// TLS is how TLS is spoken; nil for 1.2 and newer.
	TLS *tlspolicy.Policy
}

// validate says what is missing.
func (o Options) validate() error {
	if len(o.Disks)+len(o.Files) == 0 {
		return errors.New("there is no volume to export: name one by --disk or --files")
	}
	return nil
}

// Run serves until ctx or the export ends.
func Run(ctx context.Context, options Options) error {
	if err := options.validate(); err != nil {
		return err
	}
	cert, err := tls.LoadX509KeyPair(filepath.Join(options.CertDir, certs.KeyCert), filepath.Join(options.CertDir, certs.KeyKey))
	if err != nil {
		return fmt.Errorf("reading the export server's certificate: %w", err)
	}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", options.Address)
	if err != nil {
		return fmt.Errorf("starting the export server: %w", err)
	}
	if !options.Deadline.IsZero() {
		var cancel context.CancelFunc
		ctx, cancel = context.WithDeadline(ctx, options.Deadline)
		defer cancel()
	}
	config := &tls.Config{Certificates: []tls.Certificate{cert}, NextProtos: []string{"http/1.1"}}
	options.TLS.Guard(config)
	web := &http.Server{
		Handler: New(options.Volumes, options.TokenFile), TLSConfig: config,
		ReadHeaderTimeout: 30 * time.Second, IdleTimeout: time.Minute, MaxHeaderBytes: vmexport.MaxHead,
		BaseContext: func(net.Listener) context.Context { return context.WithoutCancel(ctx) },
		Protocols:   new(http.Protocols),
	}
	web.Protocols.SetHTTP1(true) // one connection has one volume
	ended := make(chan error, 1)
	go func() { ended <- web.ServeTLS(listener, "", "") }()
	log.FromContext(ctx).Info("Serving volumes", "disks", len(options.Disks), "files", len(options.Files), "deadline", options.Deadline)
	select {
	case err := <-ended:
		return fmt.Errorf("serving volumes: %w", err)
	case <-ctx.Done():
	}
	log.FromContext(ctx).Info("Ending", "because", context.Cause(ctx).Error())
	grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), farewell)
	defer cancel()
	if web.Shutdown(grace) != nil {
		_ = web.Close() // downloads that go on are cut
	}
	return nil
}
