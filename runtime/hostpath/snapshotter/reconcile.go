package snapshotter

import (
	"context"
	"errors"
	"fmt"

	"github.com/container-storage-interface/spec/lib/go/csi"
	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/slipway-vm/slipway/internal/apply"
	"github.com/slipway-vm/slipway/internal/names"
)

// Reasons of events, in the field's words.
const (
	reasonCreationFailed = "SnapshotCreationFailed"
	reasonCheckFailed    = "SnapshotContentCheckandUpdateFailed"
	reasonDeletionFailed = "SnapshotDeleteError"
)

// Reconcile brings one content of this node forward. It reads the content anew: what
// was done for it must not be done once more for a cache that is late.
func (r *reconciler) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	content := &snapshotv1.VolumeSnapshotContent{}
	if err := r.live.Get(ctx, request.NamespacedName, content); err != nil {
		if apierrors.IsNotFound(err) {
			return ctrl.Result{}, nil
		}
		return ctrl.Result{}, fmt.Errorf("reading VolumeSnapshotContent %s: %w", request.Name, err)
	}
	if content.Spec.Driver != r.options.Driver {
		return ctrl.Result{}, nil
	}
	switch node := content.Labels[labelManagedBy]; {
	case node == "":
		return ctrl.Result{}, r.claim(ctx, content) // the label brings it back
	case node != r.options.NodeName:
		return ctrl.Result{}, nil
	case content.DeletionTimestamp != nil:
		return ctrl.Result{}, r.remove(ctx, content)
	case isReady(content):
		return ctrl.Result{}, nil
	case content.Spec.Source.SnapshotHandle != nil:
		return ctrl.Result{}, r.check(ctx, content)
	default:
		return ctrl.Result{}, r.take(ctx, content)
	}
}

func isReady(content *snapshotv1.VolumeSnapshotContent) bool {
	return content.Status != nil && ptr.Deref(content.Status.ReadyToUse, false)
}

// claim labels a content whose volume or snapshot is on this node.
func (r *reconciler) claim(ctx context.Context, content *snapshotv1.VolumeSnapshotContent) error {
	here, err := r.has(ctx, content)
	if err != nil || !here {
		return err
	}
	r.options.Log.Info("Claiming a snapshot that no node is named for", "VolumeSnapshotContent", content.Name)
	return r.change(ctx, content, func() { metav1.SetMetaDataLabel(&content.ObjectMeta, labelManagedBy, r.options.NodeName) })
}

// has says whether the content's volume, or its snapshot, is on this node.
func (r *reconciler) has(ctx context.Context, content *snapshotv1.VolumeSnapshotContent) (bool, error) {
	if volume := content.Spec.Source.VolumeHandle; volume != nil {
		here, err := r.snapshots.HasVolume(*volume)
		if err != nil {
			return false, fmt.Errorf("looking for volume %s: %w", *volume, err)
		}
		if here {
			return true, nil
		}
	}
	_, err := r.snapshots.GetSnapshot(ctx, &csi.GetSnapshotRequest{SnapshotId: handle(content)})
	switch status.Code(err) {
	case codes.OK:
		return true, nil
	case codes.NotFound, codes.InvalidArgument: // no name of this driver's
		return false, nil
	default:
		return false, fmt.Errorf("looking for snapshot %s: %w", handle(content), err)
	}
}

// handle is the snapshot's name in the pool: given, or made of the VolumeSnapshot's uid, so that a
// process that ended before it wrote the handle down finds the same snapshot again.
func handle(content *snapshotv1.VolumeSnapshotContent) string {
	if content.Spec.Source.SnapshotHandle != nil {
		return *content.Spec.Source.SnapshotHandle
	}
	if content.Status != nil && content.Status.SnapshotHandle != nil {
		return *content.Status.SnapshotHandle
	}
	return "snapshot-" + string(content.Spec.VolumeSnapshotRef.UID)
}

// take takes a snapshot of the content's volume.
func (r *reconciler) take(ctx context.Context, content *snapshotv1.VolumeSnapshotContent) error {
	parameters, err := r.parameters(ctx, content)
	if err != nil {
		return r.failed(ctx, content, reasonCreationFailed, err)
	}
	response, err := r.snapshots.CreateSnapshot(ctx, &csi.CreateSnapshotRequest{
		Name: handle(content), SourceVolumeId: *content.Spec.Source.VolumeHandle, Parameters: parameters,
	})
	if err != nil {
		return r.failed(ctx, content, reasonCreationFailed, err)
	}
	return r.done(ctx, content, response.GetSnapshot())
}

// parameters are those of the content's class.
func (r *reconciler) parameters(ctx context.Context, content *snapshotv1.VolumeSnapshotContent) (map[string]string, error) {
	name := ptr.Deref(content.Spec.VolumeSnapshotClassName, "")
	if name == "" {
		return nil, nil
	}
	class := &snapshotv1.VolumeSnapshotClass{}
	if err := r.live.Get(ctx, client.ObjectKey{Name: name}, class); err != nil {
		return nil, fmt.Errorf("reading VolumeSnapshotClass %s: %w", name, err)
	}
	return class.Parameters, nil
}

// check looks whether the snapshot that a content names is there.
func (r *reconciler) check(ctx context.Context, content *snapshotv1.VolumeSnapshotContent) error {
	response, err := r.snapshots.GetSnapshot(ctx, &csi.GetSnapshotRequest{SnapshotId: handle(content)})
	if err != nil {
		return r.failed(ctx, content, reasonCheckFailed, err)
	}
	return r.done(ctx, content, response.GetSnapshot())
}

// remove deletes the snapshot's data, unless it is to be kept, and lets the content go.
func (r *reconciler) remove(ctx context.Context, content *snapshotv1.VolumeSnapshotContent) error {
	if !controllerutil.ContainsFinalizer(content, finalizerContent) || !mayGo(content) {
		return nil
	}
	if content.Spec.DeletionPolicy == snapshotv1.VolumeSnapshotContentDelete {
		if _, err := r.snapshots.DeleteSnapshot(ctx, &csi.DeleteSnapshotRequest{SnapshotId: handle(content)}); err != nil {
			return r.failed(ctx, content, reasonDeletionFailed, err)
		}
	}
	return r.change(ctx, content, func() { controllerutil.RemoveFinalizer(content, finalizerContent) })
}

// mayGo says that no VolumeSnapshot needs the content: its own is being deleted, or it never had one.
func mayGo(content *snapshotv1.VolumeSnapshotContent) bool {
	_, deleted := content.Annotations[annotationDeleted]
	return deleted || content.Spec.Source.SnapshotHandle != nil && content.Spec.VolumeSnapshotRef.UID == ""
}

// change patches what edit changes of content, of the version that was read.
func (r *reconciler) change(ctx context.Context, content *snapshotv1.VolumeSnapshotContent, edit func()) error {
	patch := client.MergeFromWithOptions(content.DeepCopy(), client.MergeFromWithOptimisticLock{})
	edit()
	if err := r.Patch(ctx, content, patch, client.FieldOwner(names.ManagerHandler)); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("changing VolumeSnapshotContent %s: %w", content.Name, err)
	}
	return nil
}

// done writes down that the snapshot is there.
func (r *reconciler) done(ctx context.Context, content *snapshotv1.VolumeSnapshotContent, snapshot *csi.Snapshot) error {
	found := snapshotv1.VolumeSnapshotContentStatus{SnapshotHandle: &snapshot.SnapshotId, ReadyToUse: &snapshot.ReadyToUse}
	if created := snapshot.GetCreationTime(); created != nil {
		found.CreationTime = new(created.AsTime().UnixNano())
	}
	if snapshot.GetSizeBytes() > 0 { // unknown of a directory that another driver made
		found.RestoreSize = &snapshot.SizeBytes
	}
	return r.write(ctx, content, found)
}

// failed writes down what went wrong, once, and returns it, so that it is tried again.
func (r *reconciler) failed(ctx context.Context, content *snapshotv1.VolumeSnapshotContent, reason string, cause error) error {
	if ctx.Err() != nil || status.Code(cause) == codes.Aborted {
		return cause // this process ends, or another call is under way: neither is the user's concern
	}
	words := cause.Error()
	if known, ok := status.FromError(cause); ok {
		words = known.Message()
	}
	now := ptr.Deref(content.Status, snapshotv1.VolumeSnapshotContentStatus{})
	if now.Error != nil && ptr.Deref(now.Error.Message, "") == words {
		return cause
	}
	r.events.Eventf(content, nil, corev1.EventTypeWarning, reason, "Reconcile", "%s", words)
	now.Error = &snapshotv1.VolumeSnapshotError{Time: new(metav1.NewTime(r.now())), Message: &words}
	if now.ReadyToUse == nil {
		now.ReadyToUse = new(false)
	}
	return errors.Join(cause, r.write(ctx, content, now))
}

func (r *reconciler) write(ctx context.Context, content *snapshotv1.VolumeSnapshotContent, found snapshotv1.VolumeSnapshotContentStatus) error {
	err := apply.Status(ctx, r.Client, content, names.ManagerHandler, found)
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil // deleted meanwhile
	}
	return err
}
