package uploadproxy

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/slipway-vm/slipway/internal/certs"
	"github.com/slipway-vm/slipway/internal/metric"
	"github.com/slipway-vm/slipway/internal/upload"
)

// Options configure cdi-uploadproxy.
type Options struct {
	// Namespace is that of the installation.
	Namespace string
	// Address is where images are taken, with TLS.
	Address string
	// HealthAddress is where health is served, MetricsAddress where metrics are; "0" serves none.
	HealthAddress, MetricsAddress string
	// Hosts are further names by which the proxy is reached, such as that of an Ingress that hands TLS through.
	Hosts []string
	// Dial connects to upload servers by the names of their Services; nil does it by the cluster's DNS.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
}

// Run serves uploads to claims of the cluster of config until ctx ends.
func Run(ctx context.Context, config *rest.Config, options Options) error {
	mgr, err := ctrl.NewManager(config, ctrl.Options{
		Scheme: clientgoscheme.Scheme, BaseContext: func() context.Context { return ctx },
		Cache: cache.Options{ByObject: map[client.Object]cache.ByObject{
			&corev1.Secret{}:    {Namespaces: map[string]cache.Config{options.Namespace: {FieldSelector: one(upload.ClientSecret)}}},
			&corev1.ConfigMap{}: {Namespaces: map[string]cache.Config{options.Namespace: {FieldSelector: one(upload.SigningSecret)}}},
		}},
		HealthProbeBindAddress: options.HealthAddress, Metrics: metric.Server(options.MetricsAddress),
	})
	if err != nil {
		return fmt.Errorf("making cdi-uploadproxy's manager: %w", err)
	}
	live, err := client.NewWithWatch(config, client.Options{HTTPClient: mgr.GetHTTPClient(), Scheme: mgr.GetScheme(), Mapper: mgr.GetRESTMapper()})
	if err != nil {
		return fmt.Errorf("reaching the API server: %w", err)
	}
	server := &server{
		client: live, options: options,
		proxy: &Proxy{
			Claims: &Cluster{Client: live}, Now: time.Now,
			Trust: &Published{Namespace: options.Namespace, Reader: mgr.GetCache(), Dial: options.Dial},
		},
		keeper: &certs.Keeper{
			Secret: client.ObjectKey{Namespace: options.Namespace, Name: upload.ProxySecret}, Lifetimes: certs.DefaultLifetimes(),
			Hosts: append([]string{upload.ProxyHost(options.Namespace), upload.ProxyHost(options.Namespace) + ".cluster.local", upload.ProxyName, "localhost"}, options.Hosts...),
		},
	}
	if err := server.renew(ctx); err != nil {
		return err
	}
	err = errors.Join(
		mgr.AddHealthzCheck("ping", healthz.Ping), mgr.AddReadyzCheck("ping", healthz.Ping),
		mgr.Add(manager.RunnableFunc(server.serve)), mgr.Add(manager.RunnableFunc(server.keep)),
	)
	if err != nil {
		return fmt.Errorf("preparing cdi-uploadproxy: %w", err)
	}
	for _, followed := range []client.Object{&corev1.Secret{}, &corev1.ConfigMap{}} { // from the start, not from the first upload on
		if _, err := mgr.GetCache().GetInformer(ctx, followed, cache.BlockUntilSynced(false)); err != nil {
			return fmt.Errorf("following what is published for cdi-uploadproxy: %w", err)
		}
	}
	if err := mgr.Start(ctx); err != nil {
		return fmt.Errorf("running cdi-uploadproxy: %w", err)
	}
	return nil
}

// server serves the proxy with a certificate that it keeps.
type server struct {
	client  client.Client
	options Options
	proxy   *Proxy
	keeper  *certs.Keeper
	due     time.Time // when to renew, set by renew
}

// renew makes what is due, and publishes whom to trust.
func (s *server) renew(ctx context.Context) error {
	bundle, due, err := s.keeper.Keep(ctx, s.client, s.client, s.proxy.Now())
	if err != nil {
		return fmt.Errorf("keeping cdi-uploadproxy's certificate: %w", err)
	}
	s.due = due
	published := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: s.options.Namespace, Name: upload.ProxyBundle}}
	err = s.client.Get(ctx, client.ObjectKeyFromObject(published), published)
	missing := apierrors.IsNotFound(err)
	if err != nil && !missing {
		return fmt.Errorf("reading ConfigMap %s: %w", upload.ProxyBundle, err)
	}
	if !missing && bytes.Equal([]byte(published.Data[upload.KeyBundle]), bundle) {
		return nil
	}
	published.Data = map[string]string{upload.KeyBundle: string(bundle)}
	if missing {
		err = s.client.Create(ctx, published)
	} else {
		err = s.client.Update(ctx, published)
	}
	if err != nil && !apierrors.IsConflict(err) && !apierrors.IsAlreadyExists(err) { // another replica writes the same
		return fmt.Errorf("publishing whom to trust of cdi-uploadproxy: %w", err)
	}
	return nil
}

// renewRetry is when a renewal that failed is tried again.
const renewRetry = 30 * time.Second

// keep renews for as long as the proxy runs. What fails is tried again: uploads go on meanwhile.
func (s *server) keep(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(max(s.due.Sub(s.proxy.Now()), renewRetry)):
		}
		if err := s.renew(ctx); err != nil && ctx.Err() == nil {
			log.FromContext(ctx).Error(err, "keeping the certificate of uploads failed")
		}
	}
}

// serve takes images until ctx ends; those that come then are cut off.
func (s *server) serve(ctx context.Context) error {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", s.options.Address)
	if err != nil {
		return fmt.Errorf("serving uploads: %w", err)
	}
	web := &http.Server{
		Handler: s.proxy, ReadHeaderTimeout: 30 * time.Second, IdleTimeout: time.Minute, MaxHeaderBytes: 32 << 10,
		TLSConfig:   &tls.Config{GetCertificate: s.keeper.Certificate, MinVersion: tls.VersionTLS12},
		BaseContext: func(net.Listener) context.Context { return ctx },
		Protocols:   new(http.Protocols),
	}
	web.Protocols.SetHTTP1(true) // an image is one request, and a refused one ends its connection
	stop := context.AfterFunc(ctx, func() { _ = web.Close() })
	defer stop()
	if err := web.ServeTLS(listener, "", ""); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serving uploads: %w", err)
	}
	return nil
}
