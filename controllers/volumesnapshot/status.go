package volumesnapshot

import (
	"context"
	"time"

	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/slipway-vm/slipway/internal/apply"
	"github.com/slipway-vm/slipway/internal/names"
)

// updateStatus writes what the pass found, if it says anything new, and tells of it.
func (r *Reconciler) updateStatus(ctx context.Context, s *scope) error {
	old := ptr.Deref(s.snapshot.Status, snapshotv1.VolumeSnapshotStatus{})
	status := status(s, old, metav1.NewTime(r.now()).Rfc3339Copy())
	if equality.Semantic.DeepEqual(status, old) {
		return nil
	}
	err := apply.StatusAsRead(ctx, r.Client, s.snapshot, names.ManagerController, status)
	if apierrors.IsNotFound(err) {
		return nil // deleted meanwhile
	}
	if err != nil {
		return err
	}
	switch {
	case status.Error != nil && message(status.Error) != message(old.Error):
		reason := reasonDriver
		if s.problem != nil {
			reason = s.problem.reason
		}
		r.events.Eventf(s.snapshot, nil, corev1.EventTypeWarning, reason, "Reconcile", "%s", message(status.Error))
	case *status.ReadyToUse && !ptr.Deref(old.ReadyToUse, false):
		r.events.Eventf(s.snapshot, nil, corev1.EventTypeNormal, reasonReady, "Reconcile", "The snapshot is ready to use")
	}
	return nil
}

// status is computed from what the pass found alone; the time of an error that stays is kept.
func status(s *scope, old snapshotv1.VolumeSnapshotStatus, now metav1.Time) snapshotv1.VolumeSnapshotStatus {
	status := snapshotv1.VolumeSnapshotStatus{
		BoundVolumeSnapshotContentName: old.BoundVolumeSnapshotContentName,
		CreationTime:                   old.CreationTime, RestoreSize: old.RestoreSize, ReadyToUse: new(false),
	}
	if s.problem != nil {
		status.Error = &snapshotv1.VolumeSnapshotError{Time: &now, Message: &s.problem.message}
		if old.Error != nil && message(old.Error) == s.problem.message {
			status.Error.Time = old.Error.Time
		}
		return status
	}
	if s.content == nil {
		status.Error = old.Error
		return status
	}
	status.BoundVolumeSnapshotContentName = &s.content.Name
	found := s.content.Status
	if found == nil {
		return status
	}
	status.ReadyToUse = new(ptr.Deref(found.ReadyToUse, false))
	if found.CreationTime != nil {
		status.CreationTime = new(metav1.NewTime(time.Unix(0, *found.CreationTime)).Rfc3339Copy())
	}
	if found.RestoreSize != nil {
		status.RestoreSize = resource.NewQuantity(*found.RestoreSize, resource.BinarySI)
	}
	status.Error = found.Error.DeepCopy()
	return status
}

func message(e *snapshotv1.VolumeSnapshotError) string {
	if e == nil {
		return ""
	}
	return ptr.Deref(e.Message, "")
}
