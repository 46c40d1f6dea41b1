package volumesnapshot

import (
	"context"
	"fmt"
	"slices"
	"strings"

	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
)

// remove takes a snapshot that is being deleted away, after its content unless that is
// to be kept, and not while a claim is made from it.
func (r *Reconciler) remove(ctx context.Context, s *scope) error {
	if !controllerutil.ContainsFinalizer(s.snapshot, finalizerBound) && !controllerutil.ContainsFinalizer(s.snapshot, finalizerAsSource) {
		return nil
	}
	if err := r.findLastContent(ctx, s); err != nil {
		return err
	}
	if s.content != nil {
		restoring, err := r.restoring(ctx, s.snapshot)
		if err != nil {
			return err
		}
		if len(restoring) > 0 {
			r.events.Eventf(s.snapshot, nil, corev1.EventTypeWarning, reasonDeletePending, "Reconcile",
				"Claim %s is made from the snapshot, which goes once the claim is bound or deleted", strings.Join(restoring, ", "))
			return nil // their end is watched
		}
		kept, err := r.removeContent(ctx, s.content)
		if err != nil || !kept {
			return err // the content's end is watched
		}
	}
	if err := r.guardClaim(ctx, s); err != nil {
		return err
	}
	err := r.change(ctx, s.snapshot, func() {
		controllerutil.RemoveFinalizer(s.snapshot, finalizerAsSource)
		controllerutil.RemoveFinalizer(s.snapshot, finalizerBound)
	})
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// findLastContent finds the content past the cache, which may not have it yet: nothing
// would ever delete a content that is missed here.
func (r *Reconciler) findLastContent(ctx context.Context, s *scope) error {
	name, content := contentName(s.snapshot), &snapshotv1.VolumeSnapshotContent{}
	err := r.live.Get(ctx, client.ObjectKey{Name: name}, content)
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("reading VolumeSnapshotContent %s: %w", name, err)
	}
	if content.Spec.VolumeSnapshotRef.UID == s.snapshot.UID {
		s.content = content
	}
	return nil
}

// restoring names the claims that have no volume yet and are to have the snapshot's data. They are read past the cache, which
// may not have the one that was made just before the deletion: its data would be gone.
func (r *Reconciler) restoring(ctx context.Context, snapshot *snapshotv1.VolumeSnapshot) ([]string, error) {
	var claims corev1.PersistentVolumeClaimList
	if err := r.live.List(ctx, &claims, client.InNamespace(snapshot.Namespace)); err != nil {
		return nil, fmt.Errorf("listing claims: %w", err)
	}
	var found []string
	for i := range claims.Items {
		claim := &claims.Items[i]
		pending := claim.Status.Phase == "" || claim.Status.Phase == corev1.ClaimPending
		if pending && claim.DeletionTimestamp == nil && isFrom(claim, snapshot) {
			found = append(found, claim.Name)
		}
	}
	slices.Sort(found)
	return found, nil
}

// isFrom says that claim is to be filled from snapshot.
func isFrom(claim *corev1.PersistentVolumeClaim, snapshot *snapshotv1.VolumeSnapshot) bool {
	from := claim.Spec.DataSource
	return from != nil && from.Kind == kindSnapshot && ptr.Deref(from.APIGroup, "") == snapshotv1.GroupName && from.Name == snapshot.Name
}

// removeContent tells the driver that the content's snapshot goes, and deletes the content
// unless its policy is to keep it.
func (r *Reconciler) removeContent(ctx context.Context, content *snapshotv1.VolumeSnapshotContent) (kept bool, err error) {
	err = r.change(ctx, content, func() {
		if content.Annotations == nil {
			content.Annotations = map[string]string{}
		}
		content.Annotations[annotationDeleted] = "yes"
	})
	if apierrors.IsNotFound(err) {
		return true, nil
	}
	if err != nil {
		return false, err
	}
	if content.Spec.DeletionPolicy != snapshotv1.VolumeSnapshotContentDelete {
		return true, nil
	}
	if content.DeletionTimestamp != nil {
		return false, nil
	}
	if err := r.Delete(ctx, content); client.IgnoreNotFound(err) != nil {
		return false, fmt.Errorf("deleting VolumeSnapshotContent %s: %w", content.Name, err)
	}
	return false, nil
}
