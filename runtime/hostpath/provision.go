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
	"github.com/slipway-vm/slipway/runtime/hostpath/legacy"
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
func provision(ctx context.Context, options Options, client kubernetes.Interface, d *driver.Driver, counted metrics.Metrics) error {
	ctx = klog.NewContext(ctx, options.Log.WithName("provisioner"))
	objects, err := ctrlclient.New(options.Config, ctrlclient.Options{Scheme: scheme.New()})
	if err != nil {
		return fmt.Errorf("making a client for snapshots and sizes: %w", err)
	}
	factory := informers.NewSharedInformerFactoryWithOptions(client, resync, informers.WithTransform(withoutManagers))
	c := library{client, factory, counted}.controller(ctx, names.HostPathDriver,
		provisioner.New(client, objects, d, provisioner.Options{
			Driver: names.HostPathDriver, NodeName: options.NodeName, TopologyKey: names.TopologyNode,
		}),
		controller.AddFinalizer(true)) // a PersistentVolume goes after its data
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

// provisionLegacy makes and removes the volumes of the provisioner before the driver until ctx ends. Without a directory
// for them nothing is done about them: another program of that name may serve them.
func provisionLegacy(ctx context.Context, options Options, client kubernetes.Interface, known *pools, counted metrics.Metrics) {
	log := options.Log.WithName("legacy-provisioner")
	ctx = klog.NewContext(ctx, log)
	factory := informers.NewSharedInformerFactoryWithOptions(client, resync, informers.WithTransform(withoutManagers))
	c := library{client, factory, counted}.controller(ctx, names.LegacyHostPathDriver,
		legacy.New(legacy.Options{NodeName: options.NodeName, HostRoot: options.HostRoot, Config: known.Legacy, Log: log}),
		controller.AddFinalizer(false)) // as before: on volumes of other nodes, too, it would be this node's to add
	factory.StartWithContext(ctx)
	defer factory.Shutdown()
	c.Run(ctx)
}

// library is what the controllers of the provisioning library share. It uses the informers of factory, which is to be started.
type library struct {
	client  kubernetes.Interface
	factory informers.SharedInformerFactory
	counted metrics.Metrics
}

// controller returns what has p make and remove the volumes of a provisioner.
func (l library) controller(ctx context.Context, name string, p controller.Provisioner,
	finalizer func(*controller.ProvisionController) error,
) *controller.ProvisionController {
	limiter := workqueue.NewTypedItemExponentialFailureRateLimiter[string](firstRetry, lastRetry)
	return controller.NewProvisionController(ctx, l.client, name, p,
		controller.LeaderElection(false), // each node has its own claims and volumes
		finalizer,
		controller.Threadiness(workers),
		controller.RateLimiter(limiter),
		controller.FailedProvisionThreshold(0), // never give up
		controller.FailedDeleteThreshold(0),
		controller.ResyncPeriod(resync),
		controller.MetricsInstance(l.counted),
		controller.ClaimsInformer(l.factory.Core().V1().PersistentVolumeClaims().Informer()),
		controller.VolumesInformer(l.factory.Core().V1().PersistentVolumes().Informer()),
		controller.ClassesInformer(l.factory.Storage().V1().StorageClasses().Informer()),
	)
}

// withoutManagers drops what nobody reads here from what is kept of each object.
func withoutManagers(object any) (any, error) {
	if accessor, err := meta.Accessor(object); err == nil {
		accessor.SetManagedFields(nil)
	}
	return object, nil
}

// newCounted returns what the provisioners count, which registerer tells of; nil: nobody does.
func newCounted(registerer prometheus.Registerer) (metrics.Metrics, error) {
	counted := metrics.New("controller")
	if registerer == nil {
		return counted, nil
	}
	for _, collector := range []prometheus.Collector{
		counted.PersistentVolumeClaimProvisionTotal, counted.PersistentVolumeClaimProvisionFailedTotal,
		counted.PersistentVolumeClaimProvisionDurationSeconds, counted.PersistentVolumeDeleteTotal,
		counted.PersistentVolumeDeleteFailedTotal, counted.PersistentVolumeDeleteDurationSeconds,
	} {
		if err := registerer.Register(collector); err != nil {
			return counted, fmt.Errorf("registering the metrics of node storage: %w", err)
		}
	}
	return counted, nil
}
