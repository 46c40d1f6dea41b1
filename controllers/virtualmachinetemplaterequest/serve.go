package virtualmachinetemplaterequest

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
	snapshotv1 "kubevirt.io/api/snapshot/v1beta1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	vmtemplatev1beta1 "github.com/slipway-vm/slipway/internal/api/virtualmachinetemplate/v1beta1"
	"github.com/slipway-vm/slipway/internal/served"
)

// definition is the one that decides who makes templates of VMs.
var definition = served.Kind{
	Definition: "virtualmachinetemplaterequests." + vmtemplatev1beta1.GroupVersion.Group, Version: vmtemplatev1beta1.GroupVersion.Version,
}

// SetupWithManager adds to mgr, whose cluster has VolumeSnapshots, what runs as long as the definition of requests is Slipway's. VMs are
// watched in parent's cache.
func SetupWithManager(mgr, parent ctrl.Manager) error {
	direct, err := client.NewWithWatch(mgr.GetConfig(), client.Options{Scheme: mgr.GetScheme()})
	if err != nil {
		return fmt.Errorf("making a client for the definition of VirtualMachineTemplateRequests: %w", err)
	}
	err = mgr.Add(manager.RunnableFunc(func(ctx context.Context) error {
		return served.While(ctx, direct, definition, func(ctx context.Context, ours bool) error {
			if !ours { // KubeVirt's own template controller does it
				<-ctx.Done()
				return nil
			}
			return serve(ctx, parent)
		})
	}))
	if err != nil {
		return fmt.Errorf("adding the controller of VirtualMachineTemplateRequest: %w", err)
	}
	return nil
}

// serve runs the controller until the definition goes, with a cache of its own, which could not wait for a kind that is not there. Of
// snapshots and DataVolumes it has those that are made for requests.
func serve(ctx context.Context, parent ctrl.Manager) error {
	made, err := labels.NewRequirement(vmtemplatev1beta1.LabelRequest, selection.Exists, nil)
	if err != nil {
		return fmt.Errorf("selecting what is made for requests: %w", err)
	}
	only := cache.ByObject{Label: labels.NewSelector().Add(*made)}
	mgr, err := ctrl.NewManager(parent.GetConfig(), ctrl.Options{
		Scheme: parent.GetScheme(),
		Cache: cache.Options{DefaultTransform: cache.TransformStripManagedFields(), ByObject: map[client.Object]cache.ByObject{
			&snapshotv1.VirtualMachineSnapshot{}: only, &cdiv1.DataVolume{}: only,
		}},
		Metrics: metricsserver.Options{BindAddress: "0"}, HealthProbeBindAddress: "0",
		Controller: config.Controller{SkipNameValidation: new(true)}, // it may be made again
	})
	if err != nil {
		return fmt.Errorf("making the manager of VirtualMachineTemplateRequests: %w", err)
	}
	if err := setup(mgr, parent); err != nil {
		return err
	}
	if err := mgr.Start(ctx); err != nil {
		return fmt.Errorf("running the controller of VirtualMachineTemplateRequests: %w", err)
	}
	return nil
}
