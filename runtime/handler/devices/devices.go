// Package devices offers the node's virtualization devices to pods, as resources
// devices.kubevirt.io/<name>, by the kubelet's device plugin API.
//
// Plugins register through the kubelet's plugins_registry folder: it lies under the
// kubelet's own root, and the kubelet looks into it again whenever it restarts, so
// nothing has to watch for that.
package devices

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sync/errgroup"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/slipway-vm/slipway/internal/names"
)

// Device is a device file that any number of pods share.
type Device struct {
	// Resource is the extended resource that pods request.
	Resource string
	// Path is the device file, the same on the node and in pods.
	Path string
}

// Candidates are the devices that a node may have, but for KVM, which is proved first.
var Candidates = []Device{
	{Resource: names.DeviceTUN, Path: "/dev/net/tun"},
	{Resource: names.DeviceVhostNet, Path: "/dev/vhost-net"},
	{Resource: names.DeviceVhostVSOCK, Path: "/dev/vhost-vsock"},
}

// KVM is the device for hardware virtualization.
var KVM = Device{Resource: names.DeviceKVM, Path: "/dev/kvm"}

// Plugins serves the node's devices until its context ends.
type Plugins struct {
	// KubeletRoot is the kubelet's root directory.
	KubeletRoot string
	// Devices are offered where the node has them.
	Devices []Device
	// Prove says whether KVM can be used; an error says why it cannot.
	Prove func(ctx context.Context) error
	// Cache has the KubeVirt object, which may say how many pods of the node can have each device.
	Cache cache.Cache

	shares *shares // made by Start
}

// Start offers the devices that are there; it returns an error when the kubelet's
// folder cannot be written.
func (p *Plugins) Start(ctx context.Context) error {
	p.shares = newShares()
	if p.Cache != nil {
		if err := p.shares.follow(ctx, p.Cache); err != nil {
			return err
		}
	}
	group, ctx := errgroup.WithContext(ctx)
	for _, device := range p.Devices {
		if present(ctx, device) {
			group.Go(func() error { return p.serve(ctx, device) })
		}
	}
	group.Go(func() error {
		if !present(ctx, KVM) {
			return nil
		}
		if err := p.Prove(ctx); err != nil {
			log.FromContext(ctx).Info("Not offering hardware virtualization", "reason", err.Error())
			return nil
		}
		return p.serve(ctx, KVM)
	})
	if err := group.Wait(); err != nil {
		return fmt.Errorf("serving device plugins: %w", err)
	}
	return nil
}

func present(ctx context.Context, device Device) bool {
	_, err := os.Stat(device.Path)
	if err != nil {
		level := log.FromContext(ctx)
		if !errors.Is(err, os.ErrNotExist) {
			level.Error(err, "Not offering a device that cannot be looked at", "path", device.Path)
			return false
		}
		level.Info("Not offering a device that the node does not have", "path", device.Path)
	}
	return err == nil
}

// socketPath is where the kubelet finds the plugin of device.
func socketPath(kubeletRoot string, device Device) string {
	return filepath.Join(kubeletRoot, "plugins_registry", strings.ReplaceAll(device.Resource, "/", "-")+".sock")
}
