package hostpath

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"
	ctrlclient "sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/sig-storage-lib-external-provisioner/v13/controller"
	"sigs.k8s.io/sig-storage-lib-external-provisioner/v13/controller/metrics"

	"github.com/slipway-vm/slipway/internal/names"
	"github.com/slipway-vm/slipway/internal/scheme"
	"github.com/slipway-vm/slipway/runtime/hostpath/driver"
	"github.com/slipway-vm/slipway/runtime/hostpath/provisioner"
	"github.com/slipway-vm/slipway/runtime/hostpath/resizer"
)

// workers is how many claims, and how many volumes, are worked on at once; retries wait
// from firstRetry, doubled up to lastRetry.
const (
	workers    = 4
	firstRetry = time.Second
	lastRetry  = time.Minute
	resync     = time.Hour
)

// provision makes, removes and expands volumes for claims until ctx ends.
func provision(ctx context.Context, options Options, client kubernetes.Interface, d *driver.Driver) error {
	ctx = klog.NewContext(ctx, options.Log.WithName("provisioner"))
	objects, err := ctrlclient.New(options.Config, ctrlclient.Options{Scheme: scheme.New()})
	if err != nil {
		return fmt.Errorf("making a client for snapshots and sizes: %w", err)
	}
	factory := informers.NewSharedInformerFactoryWithOptions(client, resync, informers.WithTransform(withoutManagers))
	counted := metrics.New("controller")
	if err := register(options.Registerer, counted); err != nil {
		return err
	}
	limiter := workqueue.NewTypedItemExponentialFailureRateLimiter[string](firstRetry, lastRetry)
	c := controller.NewProvisionController(ctx, client, names.HostPathDriver,
		provisioner.New(client, objects, d, provisioner.Options{
			Driver: names.HostPathDriver, NodeName: options.NodeName, TopologyKey: names.TopologyNode,
		}),
		controller.LeaderElection(false), // each node has its own claims and volumes
		controller.AddFinalizer(true),    // a PersistentVolume goes after its data
		controller.Threadiness(workers),
		controller.RateLimiter(limiter),
		controller.FailedProvisionThreshold(0), // never give up
		controller.FailedDeleteThreshold(0),
		controller.ResyncPeriod(resync),
		controller.MetricsInstance(counted),
		controller.ClaimsInformer(factory.Core().V1().PersistentVolumeClaims().Informer()),
		controller.VolumesInformer(factory.Core().V1().PersistentVolumes().Informer()),
		controller.ClassesInformer(factory.Storage().V1().StorageClasses().Informer()),
	)
	larger, err := resizer.New(client, objects, factory, d, resizer.Options{
		Driver: names.HostPathDriver, NodeName: options.NodeName, TopologyKey: names.TopologyNode, Log: options.Log.WithName("resizer"),
	})
	if err != nil {
		return err
	}
	factory.StartWithContext(ctx)
	defer factory.Shutdown()
	var group sync.WaitGroup
	group.Go(func() { larger.Run(ctx) })
	c.Run(ctx)
	group.Wait()
	return nil
}

// withoutManagers drops what nobody reads here from what is kept of each object.
func withoutManagers(object any) (any, error) {
	if accessor, err := meta.Accessor(object); err == nil {
		accessor.SetManagedFields(nil)
	}
	return object, nil
}

func register(registerer prometheus.Registerer, counted metrics.Metrics) error {
	if registerer == nil {
		return nil
	}
	for _, collector := range []prometheus.Collector{
		counted.PersistentVolumeClaimProvisionTotal, counted.PersistentVolumeClaimProvisionFailedTotal,
		counted.PersistentVolumeClaimProvisionDurationSeconds, counted.PersistentVolumeDeleteTotal,
		counted.PersistentVolumeDeleteFailedTotal, counted.PersistentVolumeDeleteDurationSeconds,
	} {
		if err := registerer.Register(collector); err != nil {
			return fmt.Errorf("registering the metrics of node storage: %w", err)
		}
	}
	return nil
}
