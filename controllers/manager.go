package controllers

import (
	"context"
	"errors"
	"fmt"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/healthz"

	"github.com/slipway-vm/slipway/controllers/cached"
	"github.com/slipway-vm/slipway/internal/metric"
	"github.com/slipway-vm/slipway/internal/ratelimit"
	"github.com/slipway-vm/slipway/internal/scheme"
)

// The lease is renewed slowly, to spare the API server, and released on exit, so that
// only a process that was killed together with its pod leaves the others waiting. Who could not renew it writes nothing
// from when another may lead, though it ends a while later.
const leaseName = "virt-controller"

var slowLease = lease{duration: 60 * time.Second, deadline: 45 * time.Second, retry: 15 * time.Second}

// lease is how the lead is kept: who has not renewed it for duration loses it to another process, who could not renew it for deadline
// ends, and retry is the time between two attempts.
type lease struct{ duration, deadline, retry time.Duration }

// RequestRate is how many requests the controllers make while the KubeVirt object says nothing of that: enough for a burst of starts, below what
// troubles an API server.
var RequestRate = ratelimit.Rate{QPS: 600, Burst: 1200}

// Run runs all controllers against the cluster of config until ctx ends.
func Run(ctx context.Context, config *rest.Config, options Options) error {
	if err := options.validate(); err != nil {
		return fmt.Errorf("reading virt-controller's options: %w", err)
	}
	config = rest.CopyConfig(config)
	if err := metric.CountRequests(config); err != nil {
		return err
	}
	if options.lease == (lease{}) {
		options.lease = slowLease
	}
	lock, err := resourcelock.NewFromKubeconfig(resourcelock.LeasesResourceLock, options.Namespace, leaseName,
		resourcelock.ResourceLockConfig{Identity: options.Identity}, config, options.lease.deadline)
	if err != nil {
		return fmt.Errorf("preparing lease %s: %w", leaseName, err)
	}
	own := &lead{Interface: lock, duration: options.lease.duration, now: time.Now}
	config.Wrap(own.guard) // the lease itself is written by a client that was made before, and waits for no other request
	if config.RateLimiter = options.Limiter; options.Limiter == nil {
		config.RateLimiter = ratelimit.New(RequestRate)
	}
	mgr, err := newManager(ctx, config, options, own)
	if err != nil {
		return err
	}
	if err := setup(ctx, mgr, options); err != nil {
		return err
	}
	if options.Extend != nil {
		if err := options.Extend(mgr); err != nil {
			return fmt.Errorf("preparing virt-controller: %w", err)
		}
	}
	if err := mgr.Start(ctx); err != nil {
		return fmt.Errorf("running the controllers: %w", err)
	}
	return nil
}

func newManager(ctx context.Context, config *rest.Config, options Options, lock resourcelock.Interface) (ctrl.Manager, error) {
	mgr, err := ctrl.NewManager(config, ctrl.Options{
		Scheme:                              scheme.New(),
		BaseContext:                         func() context.Context { return ctx },
		Cache:                               cached.Options(options.Namespace),
		LeaderElection:                      true,
		LeaderElectionResourceLockInterface: lock,
		LeaderElectionReleaseOnCancel:       true,
		LeaseDuration:                       &options.lease.duration,
		RenewDeadline:                       &options.lease.deadline,
		RetryPeriod:                         &options.lease.retry,
		HealthProbeBindAddress:              options.HealthAddress,
		Metrics:                             metric.Server(options.MetricsAddress, options.TLS),
	})
	if err != nil {
		return nil, fmt.Errorf("making the controller manager: %w", err)
	}
	if err := errors.Join(mgr.AddHealthzCheck("ping", healthz.Ping), mgr.AddReadyzCheck("ping", healthz.Ping)); err != nil {
		return nil, fmt.Errorf("serving health: %w", err)
	}
	return mgr, errors.Join(metric.Register(metric.Component{Name: "virt_controller", Ready: healthz.Ping}), metric.Register(metric.Syncs()))
}
