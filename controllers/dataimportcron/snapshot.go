package dataimportcron

import (
	"context"
	"fmt"
	"maps"
	"time"

	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/slipway-vm/slipway/controllers/datavolume"
	"github.com/slipway-vm/slipway/controllers/storageprofile"
	"github.com/slipway-vm/slipway/internal/clonesource"
	"github.com/slipway-vm/slipway/internal/names"
)

// readFormat finds what an import is to be kept as: what the StorageProfile of its claim's class says. While that says
// nothing, for it is being made, it is what the last one was kept as.
func (r *Reconciler) readFormat(ctx context.Context, s *scope) error {
	s.format = cdiv1.DataImportCronSourceFormatPvc
	if s.claim == nil || ptr.Deref(s.claim.Spec.StorageClassName, "") == "" {
		return nil
	}
	var err error
	s.profile, err = get(ctx, r.Client, types.NamespacedName{Name: *s.claim.Spec.StorageClassName}, &cdiv1.StorageProfile{})
	if err != nil {
		return err
	}
	s.format = ptr.Deref(s.cron.Status.SourceFormat, s.format)
	if s.profile != nil {
		s.format = ptr.Deref(s.profile.Status.DataImportCronSourceFormat, s.format)
	}
	return nil
}

// snapshotOf returns the DataImportCron's snapshot of a name; nil when there is none, or the cluster does not
// have the kind.
func (r *Reconciler) snapshotOf(ctx context.Context, cron *cdiv1.DataImportCron, name string) (*snapshotv1.VolumeSnapshot, error) {
	snapshot, err := get(ctx, r.live, types.NamespacedName{Namespace: cron.Namespace, Name: name}, &snapshotv1.VolumeSnapshot{})
	if meta.IsNoMatchError(err) {
		return nil, nil
	}
	if err != nil || snapshot == nil || snapshot.Labels[LabelCron] != cron.Name {
		return nil, err
	}
	return snapshot, nil
}

// ready reports whether claims can be made from a snapshot.
func ready(snapshot *snapshotv1.VolumeSnapshot) bool {
	return snapshot.Status != nil && ptr.Deref(snapshot.Status.ReadyToUse, false)
}

// takeSnapshot takes the snapshot as which the import that has ended is kept.
func (r *Reconciler) takeSnapshot(ctx context.Context, s *scope) error {
	switch {
	case s.current == nil || s.snapshotted():
		return nil
	case s.snapshot != nil: // no event comes when it is ready: a cluster may not have its kind
		s.unkept = obstacleOf(s.snapshot, s.claim == nil, r.now())
		s.sooner(snapshotRetry)
		return nil
	case !s.filled() || s.format != cdiv1.DataImportCronSourceFormatSnapshot:
		return nil
	case s.profile == nil || s.profile.Status.DataImportCronSourceFormat == nil: // an event comes when it says something
		s.unkept = fmt.Sprintf("StorageProfile %s, which says how a snapshot is taken, says nothing yet", *s.claim.Spec.StorageClassName)
		return nil
	}
	class := ptr.Deref(s.profile.Status.SnapshotClass, "")
	if class == "" {
		s.unkept = fmt.Sprintf("StorageProfile %s wants images kept as snapshots, and %s, or set the profile's spec.dataImportCronSourceFormat to pvc",
			s.profile.Name, storageprofile.NoSnapshotClass(s.profile))
		return nil
	}
	return r.createSnapshot(ctx, s, class)
}

// createSnapshot asks for the snapshot. It reads the claim past the cache, which may not show yet what is known of its disk.
func (r *Reconciler) createSnapshot(ctx context.Context, s *scope, class string) error {
	claim, err := get(ctx, r.live, client.ObjectKeyFromObject(s.claim), &corev1.PersistentVolumeClaim{})
	if err != nil {
		return err
	}
	if claim == nil || claim.UID != s.claim.UID || claim.DeletionTimestamp != nil {
		s.sooner(goneRetry)
		return nil
	}
	snapshot := newSnapshot(s.cron, claim, class)
	log.FromContext(ctx).Info("Taking a snapshot of the new image", "VolumeSnapshot", snapshot.Name)
	err = r.Create(ctx, snapshot, client.FieldOwner(manager))
	switch {
	case apierrors.IsAlreadyExists(err):
		s.taken = fmt.Sprintf("VolumeSnapshot %s exists and is not of this DataImportCron; delete or label it", snapshot.Name)
		s.sooner(firstRetry)
		return nil
	case apierrors.IsInvalid(err) || apierrors.IsForbidden(err): // a quota
		s.unkept = fmt.Sprintf("VolumeSnapshot %s is refused: %v", snapshot.Name, err)
		s.sooner(firstRetry)
		return nil
	case err != nil:
		return fmt.Errorf("creating VolumeSnapshot %s: %w", snapshot.Name, err)
	}
	s.snapshot = snapshot
	s.sooner(snapshotRetry)
	return nil
}

// obstacleOf says why a snapshot that is not ready now may not become so; empty when nothing is known of that.
func obstacleOf(snapshot *snapshotv1.VolumeSnapshot, orphaned bool, now time.Time) string {
	switch {
	case snapshot.DeletionTimestamp != nil:
		return fmt.Sprintf("VolumeSnapshot %s is being deleted", snapshot.Name)
	case snapshot.Status != nil && snapshot.Status.Error != nil && ptr.Deref(snapshot.Status.Error.Message, "") != "":
		return fmt.Sprintf("VolumeSnapshot %s is not ready: %s", snapshot.Name, *snapshot.Status.Error.Message)
	case orphaned:
		return fmt.Sprintf("VolumeSnapshot %s is not ready, and the PVC that it is of is gone; delete it to have the image imported again", snapshot.Name)
	case overdue(snapshot, now):
		return fmt.Sprintf("VolumeSnapshot %s is not ready after %s and does not say why; look at its VolumeSnapshotContent, and whether the driver's snapshotter runs",
			snapshot.Name, snapshotPatience)
	}
	return ""
}

// overdue reports whether a snapshot that is not ready now was asked for so long ago that it may never be.
func overdue(snapshot *snapshotv1.VolumeSnapshot, now time.Time) bool {
	return now.Sub(snapshot.CreationTimestamp.Time) > snapshotPatience
}

// newSnapshot returns the snapshot as which an import is kept: of the claim's name, with what is known of its disk.
func newSnapshot(cron *cdiv1.DataImportCron, claim *corev1.PersistentVolumeClaim, class string) *snapshotv1.VolumeSnapshot {
	snapshot := &snapshotv1.VolumeSnapshot{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: claim.Namespace, Name: claim.Name,
			Labels: clonesource.Defaults(claim.Labels), OwnerReferences: owners(cron),
		},
		Spec: snapshotv1.VolumeSnapshotSpec{
			Source: snapshotv1.VolumeSnapshotSource{PersistentVolumeClaimName: new(claim.Name)}, VolumeSnapshotClassName: new(class),
		},
	}
	maps.Copy(snapshot.Labels, map[string]string{names.LabelManagedBy: names.ManagedBy, names.LabelComponent: "storage"})
	maps.Copy(snapshot.Labels, labels(cron))
	mode := ptr.Deref(claim.Spec.VolumeMode, corev1.PersistentVolumeFilesystem)
	snapshot.Annotations = datavolume.Held(mode, *claim.Status.Capacity.Storage(), claim.Annotations[names.AnnotationDigest])
	return snapshot
}

// keptBefore makes an image the current import that was imported before and still is there as a snapshot, and
// says whether there is one; the next pass takes it up. A snapshot that never became ready, whose claim is gone, goes: the
// image is imported anew.
func (r *Reconciler) keptBefore(ctx context.Context, s *scope, name string) (bool, error) {
	snapshot, err := r.snapshotOf(ctx, s.cron, name)
	if err != nil || snapshot == nil || snapshot.DeletionTimestamp != nil {
		return false, err
	}
	if !ready(snapshot) && overdue(snapshot, r.now()) {
		claim, err := get(ctx, r.live, client.ObjectKeyFromObject(snapshot), &corev1.PersistentVolumeClaim{})
		if err != nil {
			return false, err
		}
		if claim == nil {
			return false, r.discard(ctx, snapshot)
		}
	}
	log.FromContext(ctx).Info("Taking up an image that is there already", "VolumeSnapshot", name, "digest", s.digest)
	s.sooner(busyRetry)
	return true, nil
}
