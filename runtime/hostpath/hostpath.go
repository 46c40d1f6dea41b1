// Package hostpath gives pods and VMs volumes in directories of their node: the CSI driver
// of the field's name with its registration, its provisioner and its snapshotter, all in one
// process.
package hostpath

import (
	"context"
	"fmt"
	"path/filepath"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/slipway-vm/slipway/internal/names"
	"github.com/slipway-vm/slipway/runtime/hostpath/driver"
	"github.com/slipway-vm/slipway/runtime/hostpath/loopdev"
	"github.com/slipway-vm/slipway/runtime/hostpath/metrics"
	"github.com/slipway-vm/slipway/runtime/hostpath/registration"
	"github.com/slipway-vm/slipway/runtime/hostpath/snapshotter"
)

// Options are what Run needs to know.
type Options struct {
	// NodeName is the node's name, Namespace Slipway's own, where the claims of pools are.
	NodeName, Namespace string
	// KubeletRoot is the kubelet's directory, mounted at the same path as on the node so
	// that mounts reach the node.
	KubeletRoot string
	// HostRoot is where the node's file system is mounted, "/" on the node itself.
	HostRoot string
	// Config reaches the API server.
	Config *rest.Config
	// Version is the program's, told to the kubelet.
	Version string
	// Log hears what happens.
	Log logr.Logger
	// Registerer takes the metrics; nil: there are none.
	Registerer prometheus.Registerer
}

// Run serves node storage until ctx ends. Without a HostPathProvisioner that gives this
// node pools the kubelet hears nothing of the driver.
func Run(ctx context.Context, options Options) error {
	client, err := kubernetes.NewForConfig(options.Config)
	if err != nil {
		return fmt.Errorf("making a client for node storage: %w", err)
	}
	objects, err := dynamic.NewForConfig(options.Config)
	if err != nil {
		return fmt.Errorf("making a client for node storage: %w", err)
	}
	known, err := newPools(ctx, options, client, objects)
	if err != nil {
		return err
	}
	d := driver.New(driver.Options{
		Name: names.HostPathDriver, Version: options.Version, NodeName: options.NodeName, TopologyKey: names.TopologyNode,
		KubeletRoot: options.KubeletRoot, HostRoot: options.HostRoot, Pools: known,
		Devices: loopdev.Devices{Dir: "/dev", Sys: "/sys"}, Log: options.Log.WithName("csi"),
	})
	if options.Registerer != nil {
		if err := options.Registerer.Register(metrics.Collector{Node: options.NodeName, Measure: d.Measure}); err != nil {
			return fmt.Errorf("registering the metrics of storage pools: %w", err)
		}
	}
	counted, err := newCounted(options.Registerer)
	if err != nil {
		return err
	}
	folder := filepath.Join(options.KubeletRoot, "plugins", names.HostPathDriver)
	release, err := alone(ctx, folder, options.Log)
	if ctx.Err() != nil {
		return nil
	}
	if err != nil {
		return err
	}
	defer release()
	socket := filepath.Join(folder, "csi.sock")
	listener, err := d.Listen(ctx, socket)
	if err != nil {
		return err
	}
	plugin := &registration.Plugin{
		Name: names.HostPathDriver, Endpoint: socket, Folder: filepath.Join(options.KubeletRoot, "plugins_registry"), Log: options.Log,
	}
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return known.run(ctx) })
	group.Go(func() error { return d.Serve(ctx, listener) })
	group.Go(func() error { return known.while(ctx, hasPools, plugin.Serve) })
	group.Go(func() error { return provision(ctx, options, client, d, counted) })
	group.Go(func() error {
		return known.while(ctx, hasLegacy, func(ctx context.Context) error {
			provisionLegacy(ctx, options, client, known, counted)
			return nil
		})
	})
	group.Go(func() error {
		return known.while(ctx, hasPools, func(ctx context.Context) error { return snapshot(ctx, options, d) })
	})
	return group.Wait() //nolint:wrapcheck // the parts' errors say what failed
}

// snapshot takes and removes snapshots until ctx ends.
func snapshot(ctx context.Context, options Options, d *driver.Driver) error {
	return snapshotter.Run(ctx, d, snapshotter.Options{
		Driver: names.HostPathDriver, NodeName: options.NodeName, Config: options.Config, Log: options.Log.WithName("snapshotter"),
	})
}

// while runs serve as long as has says so of what the node has.
func (p *pools) while(ctx context.Context, has func(storage) bool, serve func(context.Context) error) error {
	for p.await(ctx, has, true) {
		serving, stop := context.WithCancel(ctx)
		go func() {
			p.await(serving, has, false)
			stop()
		}()
		err := serve(serving)
		stop()
		if err != nil {
			return err
		}
	}
	return nil
}
