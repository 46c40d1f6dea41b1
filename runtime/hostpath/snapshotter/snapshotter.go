// Package snapshotter takes and removes the snapshots of the node's volumes: it works on
// those VolumeSnapshotContents whose data is on this node.
//
// A content is this node's when its label says so. A snapshot controller that was not
// told about drivers on nodes, and a person, leave the label out: then the node that
// has the volume, or the snapshot, sets it.
package snapshotter

import (
	"context"
	"fmt"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/go-logr/logr"
	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/slipway-vm/slipway/internal/scheme"
	"github.com/slipway-vm/slipway/internal/served"
)

// Words of the snapshot API that its published types do not export.
const (
	labelManagedBy    = "snapshot.storage.kubernetes.io/managed-by"
	annotationDeleted = "snapshot.storage.kubernetes.io/volumesnapshot-being-deleted"
	finalizerContent  = "snapshot.storage.kubernetes.io/volumesnapshotcontent-bound-protection"
)

// workers is how many snapshots are worked on at once; retries wait from firstRetry,
// doubled up to lastRetry.
const (
	workers    = 4
	firstRetry = time.Second
	lastRetry  = 5 * time.Minute
)

// kind is what has to be served before there is anything to do.
var kind = served.Kind{Definition: "volumesnapshotcontents." + snapshotv1.GroupName, Version: "v1"}

// Snapshots are the driver's part.
type Snapshots interface {
	CreateSnapshot(context.Context, *csi.CreateSnapshotRequest) (*csi.CreateSnapshotResponse, error)
	DeleteSnapshot(context.Context, *csi.DeleteSnapshotRequest) (*csi.DeleteSnapshotResponse, error)
	GetSnapshot(context.Context, *csi.GetSnapshotRequest) (*csi.GetSnapshotResponse, error)
	// HasVolume says whether a volume is on this node.
	HasVolume(volume string) (bool, error)
}

// Options are the facts that a snapshotter works with.
type Options struct {
	// Driver is the driver's name, NodeName the node's.
	Driver, NodeName string
	// Config reaches the API server.
	Config *rest.Config
	// Log hears what happens.
	Log logr.Logger
}

// Run works on snapshots until ctx ends, as long as the cluster has the kind.
func Run(ctx context.Context, snapshots Snapshots, options Options) error {
	ctx = logr.NewContext(ctx, options.Log)
	direct, err := client.NewWithWatch(options.Config, client.Options{Scheme: scheme.New()})
	if err != nil {
		return fmt.Errorf("making a client for snapshots: %w", err)
	}
	return served.While(ctx, direct, kind, func(ctx context.Context, _ bool) error { return serve(ctx, snapshots, options) })
}

// serve works on snapshots until ctx ends.
func serve(ctx context.Context, snapshots Snapshots, options Options) error {
	mine, unclaimed, err := selectors(options.NodeName)
	if err != nil {
		return err
	}
	mgr, err := ctrl.NewManager(options.Config, ctrl.Options{
		Scheme: scheme.New(), Logger: options.Log, Cache: cacheOf(mine, options.Driver),
		Metrics: metricsserver.Options{BindAddress: "0"}, HealthProbeBindAddress: "0",
		Controller: config.Controller{SkipNameValidation: new(true)}, // it may be made again
	})
	if err != nil {
		return fmt.Errorf("making the manager of snapshots: %w", err)
	}
	others := cacheOf(unclaimed, options.Driver)
	others.Scheme, others.Mapper, others.HTTPClient = mgr.GetScheme(), mgr.GetRESTMapper(), mgr.GetHTTPClient()
	waiting, err := cache.New(options.Config, others)
	if err != nil {
		return fmt.Errorf("making the cache of snapshots that no node has claimed: %w", err)
	}
	if err := mgr.Add(waiting); err != nil {
		return fmt.Errorf("adding the cache of snapshots that no node has claimed: %w", err)
	}
	r := &reconciler{
		Client: mgr.GetClient(), live: mgr.GetAPIReader(), events: mgr.GetEventRecorder("hostpath-snapshotter"),
		snapshots: snapshots, options: options, now: time.Now,
	}
	ours := func(object client.Object) bool {
		content, ok := object.(*snapshotv1.VolumeSnapshotContent)
		return ok && content.Spec.Driver == options.Driver
	}
	err = ctrl.NewControllerManagedBy(mgr).Named("volumesnapshotcontent").
		For(&snapshotv1.VolumeSnapshotContent{}, builder.WithPredicates(predicate.NewPredicateFuncs(ours))).
		WatchesRawSource(source.Kind(waiting, &snapshotv1.VolumeSnapshotContent{},
			&handler.TypedEnqueueRequestForObject[*snapshotv1.VolumeSnapshotContent]{},
			predicate.NewTypedPredicateFuncs(func(c *snapshotv1.VolumeSnapshotContent) bool { return ours(c) }))).
		WithOptions(controller.Options{
			MaxConcurrentReconciles: workers,
			RateLimiter:             workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](firstRetry, lastRetry),
		}).
		Complete(r)
	if err != nil {
		return fmt.Errorf("setting up the controller of VolumeSnapshotContent: %w", err)
	}
	if err := mgr.Start(ctx); err != nil {
		return fmt.Errorf("working on snapshots: %w", err)
	}
	return nil
}

// selectors select the contents of a node, and those that no node has claimed.
func selectors(node string) (mine, unclaimed labels.Selector, err error) {
	has, err := labels.NewRequirement(labelManagedBy, selection.Equals, []string{node})
	if err != nil {
		return nil, nil, fmt.Errorf("selecting the snapshots of node %s: %w", node, err)
	}
	lacks, err := labels.NewRequirement(labelManagedBy, selection.DoesNotExist, nil)
	if err != nil {
		return nil, nil, fmt.Errorf("selecting the snapshots of no node: %w", err)
	}
	return labels.NewSelector().Add(*has), labels.NewSelector().Add(*lacks), nil
}

// cacheOf keeps the contents that are selected, and of other drivers' only that they are there.
func cacheOf(selected labels.Selector, driver string) cache.Options {
	return cache.Options{ByObject: map[client.Object]cache.ByObject{
		&snapshotv1.VolumeSnapshotContent{}: {Label: selected, Transform: func(object any) (any, error) {
			content, ok := object.(*snapshotv1.VolumeSnapshotContent)
			if !ok {
				return object, nil
			}
			if content.Spec.Driver != driver {
				return &snapshotv1.VolumeSnapshotContent{ObjectMeta: metav1.ObjectMeta{Name: content.Name, ResourceVersion: content.ResourceVersion}}, nil
			}
			content.ManagedFields = nil
			return content, nil
		}},
	}}
}

// reconciler works on the contents of this node.
type reconciler struct {
	client.Client

	live      client.Reader // past the caches, which are only for the watches
	events    events.EventRecorder
	snapshots Snapshots
	options   Options
	now       func() time.Time
}
