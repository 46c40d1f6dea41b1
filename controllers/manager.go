package controllers

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/healthz"

	"github.com/slipway-vm/slipway/controllers/datavolume"
	"github.com/slipway-vm/slipway/internal/metric"
	"github.com/slipway-vm/slipway/internal/names"
	"github.com/slipway-vm/slipway/internal/scheme"
)

// The lease is renewed slowly, to spare the API server, and released on exit, so that
// only a process that was killed together with its pod leaves the others waiting.
const (
	leaseName     = "virt-controller"
	leaseDuration = 60 * time.Second
	leaseDeadline = 45 * time.Second
	leaseRetry    = 15 * time.Second
)

// Client rate limits: enough for a burst of starts, below what troubles an API server.
const (
	clientQPS   = 200
	clientBurst = 400
)

// Run runs all controllers against the cluster of config until ctx ends.
func Run(ctx context.Context, config *rest.Config, options Options) error {
	if err := options.validate(); err != nil {
		return fmt.Errorf("reading virt-controller's options: %w", err)
	}
	config = rest.CopyConfig(config)
	config.QPS, config.Burst = clientQPS, clientBurst
	lock, err := resourcelock.NewFromKubeconfig(resourcelock.LeasesResourceLock, options.Namespace, leaseName,
		resourcelock.ResourceLockConfig{Identity: options.Identity}, config, leaseDeadline)
	if err != nil {
		return fmt.Errorf("preparing lease %s: %w", leaseName, err)
	}
	mgr, err := newManager(ctx, config, options, lock)
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
	duration, deadline, retry := leaseDuration, leaseDeadline, leaseRetry
	mgr, err := ctrl.NewManager(config, ctrl.Options{
		Scheme:                              scheme.New(),
		BaseContext:                         func() context.Context { return ctx },
		Cache:                               cacheOptions(options.Namespace),
		LeaderElection:                      true,
		LeaderElectionResourceLockInterface: lock,
		LeaderElectionReleaseOnCancel:       true,
		LeaseDuration:                       &duration,
		RenewDeadline:                       &deadline,
		RetryPeriod:                         &retry,
		HealthProbeBindAddress:              options.HealthAddress,
		Metrics:                             metric.Server(options.MetricsAddress),
	})
	if err != nil {
		return nil, fmt.Errorf("making the controller manager: %w", err)
	}
	if err := errors.Join(mgr.AddHealthzCheck("ping", healthz.Ping), mgr.AddReadyzCheck("ping", healthz.Ping)); err != nil {
		return nil, fmt.Errorf("serving health: %w", err)
	}
	return mgr, nil
}

// cacheOptions keep the memory small: of pods only our own are cached, and of every
// object only what some controller reads; of Ingresses those of Slipway's namespace.
func cacheOptions(namespace string) cache.Options {
	pods := cache.ByObject{Transform: slimPod, Label: labelled(names.LabelPod)}
	return cache.Options{
		DefaultTransform: cache.TransformStripManagedFields(),
		ByObject: map[client.Object]cache.ByObject{
			&corev1.Pod{}:              pods,
			&corev1.Node{}:             {Transform: slimNode},
			&corev1.PersistentVolume{}: {Label: labelled(datavolume.LabelCloneFor)},
			&networkingv1.Ingress{}:    {Namespaces: map[string]cache.Config{namespace: {}}},
		},
	}
}

// labelled selects the objects that have a label.
func labelled(name string) labels.Selector {
	exists, err := labels.NewRequirement(name, selection.Exists, nil)
	if err != nil {
		return labels.Everything() // never: the names are constants, and a test holds them to the rules
	}
	return labels.NewSelector().Add(*exists)
}

// slimNode drops what no controller reads of a node, which is most of it.
func slimNode(in any) (any, error) {
	if node, ok := in.(*corev1.Node); ok {
		node.ManagedFields = nil
		node.Status.Images = nil
		node.Status.NodeInfo = corev1.NodeSystemInfo{}
		node.Status.VolumesInUse, node.Status.VolumesAttached = nil, nil
	}
	return in, nil
}

// slimPod drops what no controller reads of a pod that exists: how it was asked for,
// but for its containers' names, images and requests, and its claims.
func slimPod(in any) (any, error) {
	pod, ok := in.(*corev1.Pod)
	if !ok {
		return in, nil
	}
	pod.ManagedFields = nil
	pod.Spec.Affinity, pod.Spec.Tolerations, pod.Spec.SecurityContext = nil, nil, nil
	for _, containers := range [][]corev1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for i := range containers {
			c := &containers[i]
			c.Args, c.Command, c.Env, c.VolumeMounts, c.SecurityContext = nil, nil, nil, nil, nil
		}
	}
	return pod, nil
}
