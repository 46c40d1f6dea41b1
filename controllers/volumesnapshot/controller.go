package volumesnapshot

import (
	"context"
	"errors"
	"fmt"
	"time"

	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/slipway-vm/slipway/internal/served"
)

// kind is the one whose definition decides who serves snapshots.
var kind = served.Kind{Definition: "volumesnapshots." + snapshotv1.GroupName, Version: "v1"}

// Options are what the controller cannot learn from the cluster.
type Options struct {
	// WhereServed sets up what works with the kinds of snapshots, whoever serves them.
	WhereServed func(ctrl.Manager) error
}

// SetupWithManager adds to mgr what runs as long as the cluster has the kinds of snapshots.
func SetupWithManager(mgr ctrl.Manager, options Options) error {
	direct, err := client.NewWithWatch(mgr.GetConfig(), client.Options{Scheme: mgr.GetScheme()})
	if err != nil {
		return fmt.Errorf("making a client for the definition of snapshots: %w", err)
	}
	err = mgr.Add(manager.RunnableFunc(func(ctx context.Context) error {
		return served.While(ctx, direct, kind, func(ctx context.Context, ours bool) error { return serve(ctx, mgr, ours, options) })
	}))
	if err != nil {
		return fmt.Errorf("adding the controller of VolumeSnapshot: %w", err)
	}
	return nil
}

// serve runs controllers that end when the kinds go: with a cache of their own, which
// could not wait for kinds that are not there. Claims and nodes are read from parent's.
func serve(ctx context.Context, parent ctrl.Manager, ours bool, options Options) error {
	log.FromContext(ctx).Info("The cluster has VolumeSnapshots", "servedHere", ours)
	mgr, err := ctrl.NewManager(parent.GetConfig(), ctrl.Options{
		Scheme: parent.GetScheme(), Cache: cache.Options{DefaultTransform: cache.TransformStripManagedFields()},
		Metrics: metricsserver.Options{BindAddress: "0"}, HealthProbeBindAddress: "0",
		Controller: config.Controller{SkipNameValidation: new(true)}, // they may be made again
	})
	if err != nil {
		return fmt.Errorf("making the manager of snapshots: %w", err)
	}
	if options.WhereServed != nil {
		if err := options.WhereServed(mgr); err != nil {
			return err
		}
	}
	if ours {
		if err := setup(mgr, parent); err != nil {
			return err
		}
	}
	if err := mgr.Start(ctx); err != nil {
		return fmt.Errorf("running the controllers of snapshots: %w", err)
	}
	return nil
}

// Reconciler reconciles VolumeSnapshots with their contents.
type Reconciler struct {
	client.Client // of snapshots, contents and classes

	cluster client.Client // of claims and nodes
	live    client.Reader // past the caches
	events  events.EventRecorder
	now     func() time.Time
}

func setup(mgr, parent ctrl.Manager) error {
	r := &Reconciler{
		Client: mgr.GetClient(), cluster: parent.GetClient(), live: mgr.GetAPIReader(),
		events: mgr.GetEventRecorder("snapshot-controller"), now: time.Now,
	}
	err := ctrl.NewControllerManagedBy(mgr).Named("volumesnapshot").
		For(&snapshotv1.VolumeSnapshot{}).
		Watches(&snapshotv1.VolumeSnapshotContent{}, handler.EnqueueRequestsFromMapFunc(ofContent)).
		Watches(&snapshotv1.VolumeSnapshotClass{}, handler.EnqueueRequestsFromMapFunc(r.waiting)).
		WatchesRawSource(source.Kind(parent.GetCache(), &corev1.PersistentVolumeClaim{},
			handler.TypedEnqueueRequestsFromMapFunc(r.ofClaim))).
		Complete(r)
	if err != nil {
		return fmt.Errorf("setting up the controller of VolumeSnapshot: %w", err)
	}
	return nil
}

// ofContent requests the snapshot that a content is for.
func ofContent(_ context.Context, object client.Object) []reconcile.Request {
	content, ok := object.(*snapshotv1.VolumeSnapshotContent)
	if !ok {
		return nil
	}
	return []reconcile.Request{{NamespacedName: client.ObjectKey{
		Namespace: content.Spec.VolumeSnapshotRef.Namespace, Name: content.Spec.VolumeSnapshotRef.Name,
	}}}
}

// waiting requests the snapshots that have no content yet, which a class may help.
func (r *Reconciler) waiting(ctx context.Context, _ client.Object) []reconcile.Request {
	return r.those(ctx, "", func(s *snapshotv1.VolumeSnapshot) bool { return boundName(s) == "" })
}

// ofClaim requests the snapshots that a claim is the source of, and the one that it is made from.
func (r *Reconciler) ofClaim(ctx context.Context, claim *corev1.PersistentVolumeClaim) []reconcile.Request {
	return r.those(ctx, claim.Namespace, func(s *snapshotv1.VolumeSnapshot) bool {
		return sourceClaim(s) == claim.Name && !isReady(s) || s.DeletionTimestamp != nil && isFrom(claim, s)
	})
}

func (r *Reconciler) those(ctx context.Context, namespace string, chosen func(*snapshotv1.VolumeSnapshot) bool) []reconcile.Request {
	var all snapshotv1.VolumeSnapshotList
	if err := r.List(ctx, &all, client.InNamespace(namespace)); err != nil {
		log.FromContext(ctx).Error(err, "Listing VolumeSnapshots failed")
		return nil
	}
	var requests []reconcile.Request
	for i := range all.Items {
		if chosen(&all.Items[i]) {
			requests = append(requests, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&all.Items[i])})
		}
	}
	return requests
}

// scope is what one pass knows.
type scope struct {
	snapshot *snapshotv1.VolumeSnapshot
	content  *snapshotv1.VolumeSnapshotContent // which points back; set by findContent, makeContent
	claim    *corev1.PersistentVolumeClaim     // set by findSource
	volume   *corev1.PersistentVolume          // set by findSource
	class    *snapshotv1.VolumeSnapshotClass   // set by findClass
	problem  *problem                          // what the user has to know
}

// problem is what stands in the way and only a change of some object cures, which is watched.
type problem struct{ reason, message string }

// Error is for the user.
func (p *problem) Error() string { return p.message }

func fail(reason, format string, args ...any) error {
	return &problem{reason: reason, message: fmt.Sprintf(format, args...)}
}

// Reconcile brings one snapshot forward.
func (r *Reconciler) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	s := &scope{snapshot: &snapshotv1.VolumeSnapshot{}}
	if err := r.Get(ctx, request.NamespacedName, s.snapshot); err != nil {
		if apierrors.IsNotFound(err) {
			return ctrl.Result{}, nil
		}
		return ctrl.Result{}, fmt.Errorf("reading VolumeSnapshot %s: %w", request, err)
	}
	if s.snapshot.DeletionTimestamp != nil {
		return ctrl.Result{}, r.remove(ctx, s)
	}
	// The finalizers before the content, which goes with the snapshot; the claim is let
	// go when all is known of the content.
	for _, step := range []func(context.Context, *scope) error{
		r.findContent, r.protect, r.findSource, r.findClass, r.makeContent, r.bindContent, r.guardClaim,
	} {
		err := step(ctx, s)
		if found, ok := errors.AsType[*problem](err); ok {
			s.problem = found
			break
		}
		if err != nil {
			return ctrl.Result{}, err
		}
	}
	err := r.updateStatus(ctx, s)
	if apierrors.IsConflict(err) {
		log.FromContext(ctx).V(1).Info("Waiting for the newer object", "reason", err.Error())
		return ctrl.Result{Requeue: true}, nil //nolint:staticcheck // the event that brings the newer object may have passed already
	}
	return ctrl.Result{}, err
}
