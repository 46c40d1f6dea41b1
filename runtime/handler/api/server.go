// Package api is virt-handler's own API: what users do to the running VMs of a node, such
// as pauses, consoles and pictures of screens. Users never reach it: virt-api, which has
// checked who may do what, passes their requests on, and is the only one that is served.
//
// It speaks HTTPS with a certificate that is made at each start and published on the Node,
// where its client looks for it: there is no authority to keep and nothing to renew.
package api

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/slipway-vm/slipway/internal/metric"
	"github.com/slipway-vm/slipway/internal/tlspolicy"
	"github.com/slipway-vm/slipway/runtime/handler/session"
)

const (
	headerTimeout   = 10 * time.Second
	idleTimeout     = 2 * time.Minute
	shutdownTimeout = 5 * time.Second
	// callTimeout bounds what a launcher does for a request.
	callTimeout = time.Minute
)

// Options of a server.
type Options struct {
	// Address is where it listens, as host:port.
	Address string
	// NodeName is the node's name in the cluster, which the certificate is for.
	NodeName string
	// Namespace is the installation's, whose virt-api is served.
	Namespace string
	// Client reads this node's VMIs and has tokens reviewed.
	Client client.Client
	// Recorder tells users what was done.
	Recorder events.EventRecorder
	// Sessions are the launchers' connections.
	Sessions *session.Server
	// DialVSOCK connects with guests by VSOCK.
	DialVSOCK DialVSOCK
	// TLS is how TLS is spoken; nil for 1.2 and newer.
	TLS *tlspolicy.Policy
}

// Server serves the API.
type Server struct {
	options  Options
	callers  *callers
	identity tls.Certificate
	listener net.Listener
	consoles consoles
	usbSlots usbSlots
	streams  sync.WaitGroup
}

// New listens, with a new certificate; Start serves.
func New(ctx context.Context, options Options) (*Server, error) {
	identity, err := newIdentity(time.Now())
	if err != nil {
		return nil, err
	}
	if err := metric.Register(connections); err != nil {
		return nil, err
	}
	var config net.ListenConfig
	listener, err := config.Listen(ctx, "tcp", options.Address)
	if err != nil {
		return nil, fmt.Errorf("listening for virt-api: %w", err)
	}
	return &Server{
		options: options, callers: newCallers(options.Client, options.Namespace), identity: identity, listener: listener,
	}, nil
}

// Address is where the server listens.
func (s *Server) Address() net.Addr { return s.listener.Addr() }

// Certificate is the server's, in PEM.
func (s *Server) Certificate() []byte { return encodeCertificate(s.identity) }

// Start serves until ctx is done; consoles are told that they end.
func (s *Server) Start(ctx context.Context) error {
	logger := log.FromContext(ctx).WithName("api")
	config := &tls.Config{Certificates: []tls.Certificate{s.identity}, NextProtos: []string{"http/1.1"}}
	s.options.TLS.Guard(config)
	server := &http.Server{
		Handler:           s.routes(),
		BaseContext:       func(net.Listener) context.Context { return log.IntoContext(ctx, logger) },
		ReadHeaderTimeout: headerTimeout, IdleTimeout: idleTimeout,
		TLSConfig: config,
		// Websockets need the first version of HTTP.
		TLSNextProto: map[string]func(*http.Server, *tls.Conn, http.Handler){},
		ErrorLog:     slog.NewLogLogger(logr.ToSlogHandler(logger), slog.LevelDebug),
	}
	stopped := make(chan error, 1)
	stop := context.AfterFunc(ctx, func() {
		ending, cancel := context.WithTimeout(context.WithoutCancel(ctx), shutdownTimeout)
		defer cancel()
		stopped <- server.Shutdown(ending)
	})
	logger.Info("Serving virt-api", "address", s.listener.Addr().String())
	err := server.ServeTLS(s.listener, "", "")
	if stop() || !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serving virt-api: %w", err)
	}
	if err := <-stopped; err != nil {
		return fmt.Errorf("ending to serve virt-api: %w", err)
	}
	s.streams.Wait()
	return nil
}
