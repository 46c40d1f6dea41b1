// Package proxyserver is what the proxies have in common by which pods are reached from outside of the cluster:
// an HTTPS server with a certificate that it makes, renews and tells everybody the authority of, and
// connections to pods by their Services.
package proxyserver

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
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/slipway-vm/slipway/internal/certs"
	"github.com/slipway-vm/slipway/internal/tlspolicy"
)

// maxHead is how long the head of a request may be, in bytes.
const maxHead = 32 << 10

// renewRetry is when a renewal that failed is tried again.
const renewRetry = 30 * time.Second

// Options configure a proxy's server.
type Options struct {
	// Name is the Service by which the proxy is reached, Namespace that of the installation.
	Name, Namespace string
	// Hosts are further names by which it is reached, such as that of an Ingress that hands TLS through.
	Hosts []string
	// Address is where requests are taken, with TLS.
	Address string
	// Secret has the certificate; Bundle, a ConfigMap, the authorities that vouch for it, under KeyBundle.
	Secret, Bundle, KeyBundle string
	Handler                   http.Handler
	// TLS is how TLS is spoken; nil for 1.2 and newer.
	TLS *tlspolicy.Policy
	// Terms are how long its certificates are valid.
	Terms *certs.Terms
	Now   func() time.Time
}

// hosts are the names that the certificate is for.
func (o Options) hosts() []string {
	service := o.Name + "." + o.Namespace + ".svc"
	return append([]string{service, service + ".cluster.local", o.Name, "localhost"}, o.Hosts...)
}

// Run serves until ctx ends, together with mgr. Live reads and writes past mgr's cache, which has what is followed: from the
// start, not from the first request on.
func Run(ctx context.Context, mgr manager.Manager, live client.Client, options Options, followed ...client.Object) error {
	s := &server{
		Options: options, live: live,
		keeper: &certs.Keeper{
			Secret: client.ObjectKey{Namespace: options.Namespace, Name: options.Secret}, Terms: options.Terms, Hosts: options.hosts(),
		},
	}
	if err := s.Terms.Read(ctx, live); err != nil {
		return fmt.Errorf("preparing %s: %w", s.Name, err)
	}
	if err := s.renew(ctx); err != nil {
		return err
	}
	err := errors.Join(
		s.Terms.Follow(mgr),
		mgr.AddHealthzCheck("ping", healthz.Ping), mgr.AddReadyzCheck("ping", healthz.Ping),
		mgr.Add(manager.RunnableFunc(s.serve)), mgr.Add(manager.RunnableFunc(s.keep)),
	)
	if err != nil {
		return fmt.Errorf("preparing %s: %w", s.Name, err)
	}
	for _, one := range followed {
		if _, err := mgr.GetCache().GetInformer(ctx, one, cache.BlockUntilSynced(false)); err != nil {
			return fmt.Errorf("following what %s needs: %w", s.Name, err)
		}
	}
	if err := mgr.Start(ctx); err != nil {
		return fmt.Errorf("running %s: %w", s.Name, err)
	}
	return nil
}

// server serves with a certificate that it keeps.
type server struct {
	Options

	live   client.Client
	keeper *certs.Keeper
	due    time.Time // when to renew, set by renew
}

// renew makes what is due, and publishes whom to trust.
func (s *server) renew(ctx context.Context) error {
	bundle, due, err := s.keeper.Keep(ctx, s.live, s.live, s.Now())
	if err != nil {
		return fmt.Errorf("keeping the certificate of %s: %w", s.Name, err)
	}
	s.due = due
	published := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace, Name: s.Bundle}}
	err = s.live.Get(ctx, client.ObjectKeyFromObject(published), published)
	missing := apierrors.IsNotFound(err)
	if err != nil && !missing {
		return fmt.Errorf("reading ConfigMap %s: %w", s.Bundle, err)
	}
	if !missing && bytes.Equal([]byte(published.Data[s.KeyBundle]), bundle) {
		return nil
	}
	published.Data = map[string]string{s.KeyBundle: string(bundle)}
	if missing {
		err = s.live.Create(ctx, published)
	} else {
		err = s.live.Update(ctx, published)
	}
	if err != nil && !apierrors.IsConflict(err) && !apierrors.IsAlreadyExists(err) { // another replica writes the same
		return fmt.Errorf("publishing whom to trust of %s: %w", s.Name, err)
	}
	return nil
}

// keep renews for as long as the proxy runs. What fails is tried again: it serves on meanwhile.
func (s *server) keep(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-s.Terms.Changed():
		case <-time.After(max(s.due.Sub(s.Now()), renewRetry)):
		}
		if err := s.renew(ctx); err != nil && ctx.Err() == nil {
			log.FromContext(ctx).Error(err, "keeping the certificate failed")
		}
	}
}

// serve takes requests until ctx ends; those that go on then are cut off.
func (s *server) serve(ctx context.Context) error {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", s.Address)
	if err != nil {
		return fmt.Errorf("serving %s: %w", s.Name, err)
	}
	config := &tls.Config{GetCertificate: s.keeper.Certificate, NextProtos: []string{"http/1.1"}}
	s.TLS.Guard(config)
	web := &http.Server{
		Handler: s.Handler, ReadHeaderTimeout: 30 * time.Second, IdleTimeout: time.Minute, MaxHeaderBytes: maxHead,
		TLSConfig:   config,
		BaseContext: func(net.Listener) context.Context { return ctx },
		Protocols:   new(http.Protocols),
	}
	web.Protocols.SetHTTP1(true) // an image or a volume is one request, and a refused one ends its connection
	stop := context.AfterFunc(ctx, func() { _ = web.Close() })
	defer stop()
	if err := web.ServeTLS(listener, "", ""); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serving %s: %w", s.Name, err)
	}
	return nil
}
