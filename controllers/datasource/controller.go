// Package datasource keeps the Ready condition of DataSources true: a DataSource is ready
// when the claim, the snapshot or the other DataSource that it names can be cloned.
package datasource

import (
	"context"
	"fmt"
	"time"

	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/slipway-vm/slipway/internal/apply"
	"github.com/slipway-vm/slipway/internal/names"
	"github.com/slipway-vm/slipway/internal/population"
)

// Reasons of the Ready condition, in the field's words.
const (
	reasonReady            = "Ready"
	reasonNotFound         = "NotFound"
	reasonNoSource         = "NoSource"
	reasonSnapshotNotReady = "SnapshotNotReady"
	reasonMaxDepth         = "MaxDepthReached"
	reasonCycle            = "SelfReference"
	reasonLost             = "ClaimLost"
)

// snapshotRetry is how often a snapshot that is not ready is looked at: its kind is only
// watched while the cluster has it.
const snapshotRetry = 15 * time.Second

const messageReady = "DataSource is ready to be consumed"

// Options are what the controller cannot learn from the cluster: nothing so far.
type Options struct{}

// Reconciler keeps the status of DataSources.
type Reconciler struct {
	client.Client
	// live reads snapshots, a kind that a cluster may not have.
	live client.Reader
	now  func() time.Time
}

// SetupWithManager adds the controller to mgr.
func SetupWithManager(mgr ctrl.Manager, _ Options) error {
	r := &Reconciler{Client: mgr.GetClient(), live: mgr.GetAPIReader(), now: time.Now}
	err := ctrl.NewControllerManagedBy(mgr).
		Named("datasource").
		For(&cdiv1.DataSource{}).
		Watches(&corev1.PersistentVolumeClaim{}, handler.EnqueueRequestsFromMapFunc(r.users)).
		Watches(&cdiv1.DataVolume{}, handler.EnqueueRequestsFromMapFunc(r.users)).
		Watches(&cdiv1.DataSource{}, handler.EnqueueRequestsFromMapFunc(r.users)).
		Complete(r)
	if err != nil {
		return fmt.Errorf("setting up the DataSource controller: %w", err)
	}
	return nil
}

// SetupSnapshots adds to mgr, which runs while the cluster has VolumeSnapshots, what has DataSources follow those that they
// name. All else is read from parent's cache. A DataImportCron learns from its DataSource that its snapshot is gone.
func SetupSnapshots(mgr, parent ctrl.Manager) error {
	r := &Reconciler{Client: parent.GetClient(), live: mgr.GetAPIReader(), now: time.Now}
	err := ctrl.NewControllerManagedBy(mgr).
		Named("datasource-volumesnapshot").
		Watches(&snapshotv1.VolumeSnapshot{}, handler.EnqueueRequestsFromMapFunc(r.users)).
		Complete(r)
	if err != nil {
		return fmt.Errorf("setting up the snapshots of DataSources: %w", err)
	}
	return nil
}

// Reconcile computes the status of the DataSource that req names.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	source := &cdiv1.DataSource{}
	if err := r.Get(ctx, req.NamespacedName, source); err != nil {
		if apierrors.IsNotFound(err) {
			return ctrl.Result{}, nil
		}
		return ctrl.Result{}, fmt.Errorf("reading DataSource %s: %w", req.NamespacedName, err)
	}
	if source.DeletionTimestamp != nil {
		return ctrl.Result{}, nil
	}
	found, err := r.resolve(ctx, source)
	if err != nil {
		return ctrl.Result{}, err
	}
	var result ctrl.Result
	if found.source.Snapshot != nil && !found.ready {
		result.RequeueAfter = snapshotRetry
	}
	status := found.status(source.Status, metav1.NewTime(r.now()))
	if equality.Semantic.DeepEqual(status, source.Status) {
		return result, nil
	}
	return result, writeStatus(ctx, r.Client, source, status)
}

// writeStatus writes status to the object itself: the kind has no status subresource.
func writeStatus(ctx context.Context, c client.Client, source *cdiv1.DataSource, status cdiv1.DataSourceStatus) error {
	err := apply.Fields(ctx, c, source, names.ManagerData, map[string]any{"status": status})
	if apierrors.IsConflict(err) {
		log.FromContext(ctx).V(1).Info("The DataSource is gone", "cause", err.Error())
		return nil
	}
	if err != nil {
		return fmt.Errorf("writing the status of DataSource %s: %w", source.Name, err)
	}
	return nil
}

// verdict is what a DataSource leads to.
type verdict struct {
	ready           bool
	reason, message string
	source          cdiv1.DataSourceSource // the claim or snapshot at the end
}

// resolve follows a DataSource, over one other at the most.
func (r *Reconciler) resolve(ctx context.Context, source *cdiv1.DataSource) (verdict, error) {
	for depth := range 2 {
		from := source.Spec.Source
		switch {
		case from.PVC != nil:
			pvc := *from.PVC
			pvc.Namespace = inNamespace(pvc.Namespace, source)
			return r.claim(ctx, pvc)
		case from.Snapshot != nil:
			snapshot := *from.Snapshot
			snapshot.Namespace = inNamespace(snapshot.Namespace, source)
			return r.snapshot(ctx, snapshot)
		case from.DataSource == nil:
			return verdict{reason: reasonNoSource, message: "No source PVC, Snapshot or DataSource set"}, nil
		case depth > 0:
			return verdict{reason: reasonMaxDepth, message: "The DataSource points to one that points to another; point it to a PVC"}, nil
		}
		key := types.NamespacedName{Namespace: inNamespace(from.DataSource.Namespace, source), Name: from.DataSource.Name}
		if key == client.ObjectKeyFromObject(source) {
			return verdict{reason: reasonCycle, message: "The DataSource points to itself; point it to a PVC"}, nil
		}
		next := &cdiv1.DataSource{}
		if err := r.Get(ctx, key, next); apierrors.IsNotFound(err) {
			return verdict{reason: reasonNotFound, message: fmt.Sprintf("DataSource %s not found", key)}, nil
		} else if err != nil {
			return verdict{}, fmt.Errorf("reading DataSource %s: %w", key, err)
		}
		source = next
	}
	return verdict{}, nil
}

func inNamespace(namespace string, source *cdiv1.DataSource) string {
	if namespace == "" {
		return source.Namespace
	}
	return namespace
}

// claim judges a claim: it is ready when it is there and filled.
func (r *Reconciler) claim(ctx context.Context, from cdiv1.DataVolumeSourcePVC) (verdict, error) {
	v := verdict{source: cdiv1.DataSourceSource{PVC: new(from)}}
	key := types.NamespacedName{Namespace: from.Namespace, Name: from.Name}
	claim := &corev1.PersistentVolumeClaim{}
	if err := r.Get(ctx, key, claim); apierrors.IsNotFound(err) {
		v.reason, v.message = reasonNotFound, fmt.Sprintf("PVC %s not found", key)
		return v, nil
	} else if err != nil {
		return v, fmt.Errorf("reading PVC %s: %w", key, err)
	}
	switch {
	case claim.DeletionTimestamp != nil:
		v.reason, v.message = reasonNotFound, fmt.Sprintf("PVC %s is being deleted", key)
		return v, nil
	case claim.Status.Phase == corev1.ClaimLost:
		v.reason, v.message = reasonLost, fmt.Sprintf("PVC %s has lost its volume", key)
		return v, nil
	case population.Awaited(claim):
		v.reason, v.message = string(cdiv1.PendingPopulation), fmt.Sprintf("PVC %s is yet to be filled by its %s", key, population.Source(claim))
		return v, nil
	}
	by := metav1.GetControllerOf(claim)
	if by == nil || by.Kind != "DataVolume" {
		v.ready, v.reason, v.message = true, reasonReady, messageReady
		return v, nil
	}
	dv := &cdiv1.DataVolume{}
	err := r.Get(ctx, types.NamespacedName{Namespace: from.Namespace, Name: by.Name}, dv)
	switch phase := dv.Status.Phase; {
	case apierrors.IsNotFound(err):
		v.reason, v.message = reasonNotFound, fmt.Sprintf("DataVolume %s of PVC %s is gone, and the PVC goes with it", by.Name, key)
	case err != nil:
		return v, fmt.Errorf("reading DataVolume %s: %w", by.Name, err)
	case phase == cdiv1.Succeeded:
		v.ready, v.reason, v.message = true, reasonReady, messageReady
	case phase == "":
		v.reason, v.message = string(cdiv1.Pending), "Import DataVolume has not begun"
	default:
		v.reason, v.message = string(phase), fmt.Sprintf("Import DataVolume in phase %s", phase)
	}
	return v, nil
}

// snapshot judges a VolumeSnapshot.
func (r *Reconciler) snapshot(ctx context.Context, from cdiv1.DataVolumeSourceSnapshot) (verdict, error) {
	v := verdict{source: cdiv1.DataSourceSource{Snapshot: new(from)}}
	key := types.NamespacedName{Namespace: from.Namespace, Name: from.Name}
	snapshot := &snapshotv1.VolumeSnapshot{}
	switch err := r.live.Get(ctx, key, snapshot); {
	case apierrors.IsNotFound(err) || meta.IsNoMatchError(err):
		v.reason, v.message = reasonNotFound, fmt.Sprintf("Snapshot %s not found", key)
	case err != nil:
		return v, fmt.Errorf("reading VolumeSnapshot %s: %w", key, err)
	case snapshot.DeletionTimestamp != nil:
		v.reason, v.message = reasonNotFound, fmt.Sprintf("Snapshot %s is being deleted", key)
	case snapshot.Status == nil || !ptr.Deref(snapshot.Status.ReadyToUse, false):
		v.reason, v.message = reasonSnapshotNotReady, fmt.Sprintf("Snapshot %s is not ready to use", key)
	default:
		v.ready, v.reason, v.message = true, reasonReady, messageReady
	}
	return v, nil
}

// status writes v as a status; times change only with what they are about.
func (v verdict) status(old cdiv1.DataSourceStatus, now metav1.Time) cdiv1.DataSourceStatus {
	state := cdiv1.ConditionState{
		Status: corev1.ConditionFalse, Reason: v.reason, Message: v.message, LastTransitionTime: now, LastHeartbeatTime: now,
	}
	if v.ready {
		state.Status = corev1.ConditionTrue
	}
	for _, c := range old.Conditions {
		if c.Type != cdiv1.DataSourceReady || c.Status != state.Status {
			continue
		}
		state.LastTransitionTime = c.LastTransitionTime
		if c.Reason == state.Reason && c.Message == state.Message {
			state.LastHeartbeatTime = c.LastHeartbeatTime
		}
	}
	return cdiv1.DataSourceStatus{
		Source:     v.source,
		Conditions: []cdiv1.DataSourceCondition{{Type: cdiv1.DataSourceReady, ConditionState: state}},
	}
}

// named reports whether from names an object of a name.
func named(from *cdiv1.DataSourceSource, name string) bool {
	return from.PVC != nil && from.PVC.Name == name || from.Snapshot != nil && from.Snapshot.Name == name ||
		from.DataSource != nil && from.DataSource.Name == name
}

// users finds the DataSources that an object concerns: those that name one of its name.
func (r *Reconciler) users(ctx context.Context, object client.Object) []reconcile.Request {
	var all cdiv1.DataSourceList
	if err := r.List(ctx, &all); err != nil {
		log.FromContext(ctx).Error(err, "Listing DataSources failed")
		return nil
	}
	var requests []reconcile.Request
	for n := range all.Items {
		source := &all.Items[n]
		at := source.Status.Source // over another DataSource
		for _, from := range []cdiv1.DataSourceSource{source.Spec.Source, at} {
			if named(&from, object.GetName()) {
				requests = append(requests, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(source)})
				break
			}
		}
	}
	return requests
}
