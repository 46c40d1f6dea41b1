package datavolume

import (
	"context"
	"fmt"
	"strings"

	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"
)

// snapshotRemover removes the snapshots that claims were cloned through.
type snapshotRemover struct {
	client.Client // of snapshots

	live client.Reader // past the caches
}

// SetupSnapshots adds to mgr, which runs while the cluster has VolumeSnapshots, what removes those that DataVolumes
// clone through, when these have ended or are gone. DataVolumes are watched in parent's cache.
func SetupSnapshots(mgr, parent ctrl.Manager) error {
	r := &snapshotRemover{Client: mgr.GetClient(), live: mgr.GetAPIReader()}
	marked := predicate.NewPredicateFuncs(func(object client.Object) bool { return object.GetLabels()[LabelCloneFor] != "" })
	err := ctrl.NewControllerManagedBy(mgr).Named("datavolume-volumesnapshot").
		For(&snapshotv1.VolumeSnapshot{}, builder.WithPredicates(marked)).
		WatchesRawSource(source.Kind(parent.GetCache(), &cdiv1.DataVolume{}, handler.TypedEnqueueRequestsFromMapFunc(r.ofDataVolume))).
		Complete(r)
	if err != nil {
		return fmt.Errorf("setting up the removal of snapshots that are cloned through: %w", err)
	}
	return nil
}

// ofDataVolume requests the snapshot that a DataVolume clones through.
func (r *snapshotRemover) ofDataVolume(ctx context.Context, dv *cdiv1.DataVolume) []reconcile.Request {
	var all snapshotv1.VolumeSnapshotList
	if err := r.List(ctx, &all, client.MatchingLabels{LabelCloneFor: string(dv.UID)}); err != nil {
		log.FromContext(ctx).Error(err, "Listing VolumeSnapshots failed")
		return nil
	}
	var requests []reconcile.Request
	for i := range all.Items {
		requests = append(requests, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&all.Items[i])})
	}
	return requests
}

// Reconcile removes the snapshot that req names when nobody clones through it any more.
func (r *snapshotRemover) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	snapshot := &snapshotv1.VolumeSnapshot{}
	if err := r.Get(ctx, req.NamespacedName, snapshot); apierrors.IsNotFound(err) {
		return ctrl.Result{}, nil
	} else if err != nil {
		return ctrl.Result{}, fmt.Errorf("reading VolumeSnapshot %s: %w", req.NamespacedName, err)
	}
	needed, err := r.needed(ctx, snapshot)
	if err != nil || needed || snapshot.DeletionTimestamp != nil {
		return ctrl.Result{}, err
	}
	log.FromContext(ctx).Info("Deleting a snapshot that was cloned through")
	if err := r.Delete(ctx, snapshot, client.Preconditions{UID: &snapshot.UID}); client.IgnoreNotFound(err) != nil {
		return ctrl.Result{}, fmt.Errorf("deleting VolumeSnapshot %s: %w", req.NamespacedName, err)
	}
	return ctrl.Result{}, nil
}

// needed reports whether the DataVolume that a snapshot is for is there and has not ended. It reads past the cache, which
// may not show a DataVolume yet. What only looks like such a snapshot is left alone.
func (r *snapshotRemover) needed(ctx context.Context, snapshot *snapshotv1.VolumeSnapshot) (bool, error) {
	uid := types.UID(snapshot.Labels[LabelCloneFor])
	namespace, name, named := strings.Cut(snapshot.Annotations[annotationCloneFor], "/")
	if uid == "" || !named || snapshot.Name != cloneName(uid) {
		return true, nil
	}
	dv, err := get(ctx, r.live, types.NamespacedName{Namespace: namespace, Name: name}, &cdiv1.DataVolume{})
	if err != nil {
		return false, err
	}
	ended := dv == nil || dv.UID != uid || dv.DeletionTimestamp != nil || dv.Status.Phase == cdiv1.Succeeded || dv.Status.Phase == cdiv1.Failed
	return !ended, nil
}
