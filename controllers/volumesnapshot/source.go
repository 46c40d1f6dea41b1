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

// findSource finds the claim and the volume that a snapshot is to be taken of.
func (r *Reconciler) findSource(ctx context.Context, s *scope) error {
	if s.content != nil || isStatic(s.snapshot) {
		return nil
	}
	claim, name := &corev1.PersistentVolumeClaim{}, sourceClaim(s.snapshot)
	err := r.cluster.Get(ctx, client.ObjectKey{Namespace: s.snapshot.Namespace, Name: name}, claim)
	switch {
	case apierrors.IsNotFound(err):
		return fail(reasonCreationFailed, "claim %s does not exist in namespace %s: create it, or make a snapshot of another", name, s.snapshot.Namespace)
	case err != nil:
		return fmt.Errorf("reading claim %s: %w", name, err)
	case claim.DeletionTimestamp != nil:
		return fail(reasonCreationFailed, "claim %s is being deleted: make a snapshot of another", name)
	case claim.Status.Phase == corev1.ClaimLost:
		return fail(reasonCreationFailed, "claim %s has lost its volume: make a snapshot of another", name)
	case claim.Status.Phase != corev1.ClaimBound || claim.Spec.VolumeName == "":
		return fail(reasonCreationFailed, "claim %s has no volume yet: the snapshot is taken once it is bound, which may need a pod that uses it", name)
	}
	volume := &corev1.PersistentVolume{}
	if err := r.live.Get(ctx, client.ObjectKey{Name: claim.Spec.VolumeName}, volume); err != nil {
		return fmt.Errorf("reading the volume of claim %s: %w", name, err)
	}
	if volume.Spec.CSI == nil {
		return fail(reasonCreationFailed, "volume %s of claim %s is not of a CSI driver, which snapshots need", volume.Name, name)
	}
	s.claim, s.volume = claim, volume
	return nil
}

// findClass finds the class that the snapshot names, or the driver's default, which is then named.
func (r *Reconciler) findClass(ctx context.Context, s *scope) error {
	if s.content != nil || isStatic(s.snapshot) {
		return nil
	}
	driver, named := s.volume.Spec.CSI.Driver, ptr.Deref(s.snapshot.Spec.VolumeSnapshotClassName, "")
	if named == "" {
		return r.chooseClass(ctx, s, driver)
	}
	class := &snapshotv1.VolumeSnapshotClass{}
	err := r.Get(ctx, client.ObjectKey{Name: named}, class)
	switch {
	case apierrors.IsNotFound(err):
		return fail(reasonClass, "VolumeSnapshotClass %s does not exist: create it, or name one of driver %s", named, driver)
	case err != nil:
		return fmt.Errorf("reading VolumeSnapshotClass %s: %w", named, err)
	case class.Driver != driver:
		return fail(reasonCreationFailed, "claim %s is of driver %s, VolumeSnapshotClass %s of driver %s: make a snapshot with a class of %s",
			s.claim.Name, driver, named, class.Driver, driver)
	}
	s.class = class
	return nil
}

func (r *Reconciler) chooseClass(ctx context.Context, s *scope, driver string) error {
	var all snapshotv1.VolumeSnapshotClassList
	if err := r.List(ctx, &all); err != nil {
		return fmt.Errorf("listing snapshot classes: %w", err)
	}
	slices.SortFunc(all.Items, func(a, b snapshotv1.VolumeSnapshotClass) int { return strings.Compare(a.Name, b.Name) })
	for i := range all.Items {
		class := &all.Items[i]
		if class.Driver != driver || class.Annotations[annotationDefault] != "true" {
			continue
		}
		if s.class != nil {
			return fail(reasonDefaultClass, "VolumeSnapshotClass %s and %s are both the default of driver %s: name one in spec.volumeSnapshotClassName",
				s.class.Name, class.Name, driver)
		}
		s.class = class
	}
	if s.class == nil {
		return fail(reasonDefaultClass, "no VolumeSnapshotClass is the default of driver %s, of which claim %s is: name one in spec.volumeSnapshotClassName",
			driver, s.claim.Name)
	}
	return r.change(ctx, s.snapshot, func() { s.snapshot.Spec.VolumeSnapshotClassName = &s.class.Name })
}

// protectClaim keeps the claim, and with it the volume, while a snapshot of it is taken.
func (r *Reconciler) protectClaim(ctx context.Context, claim *corev1.PersistentVolumeClaim) error {
	return r.change(ctx, claim, func() { controllerutil.AddFinalizer(claim, finalizerClaim) })
}

// guardClaim keeps the claim as long as a snapshot of it is being taken, and no longer.
func (r *Reconciler) guardClaim(ctx context.Context, s *scope) error {
	name, taken := sourceClaim(s.snapshot), isBeingTaken(s)
	if name == "" {
		return nil
	}
	claim := &corev1.PersistentVolumeClaim{}
	err := r.cluster.Get(ctx, client.ObjectKey{Namespace: s.snapshot.Namespace, Name: name}, claim)
	switch {
	case apierrors.IsNotFound(err):
		return nil
	case err != nil:
		return fmt.Errorf("reading claim %s: %w", name, err)
	case taken && claim.DeletionTimestamp == nil:
		return r.protectClaim(ctx, claim)
	case taken || !controllerutil.ContainsFinalizer(claim, finalizerClaim):
		return nil
	}
	others, err := r.othersBeingTaken(ctx, s.snapshot)
	if err != nil || others {
		return err
	}
	err = r.change(ctx, claim, func() { controllerutil.RemoveFinalizer(claim, finalizerClaim) })
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// isBeingTaken says that the driver still needs the snapshot's source.
func isBeingTaken(s *scope) bool {
	return s.content != nil && s.snapshot.DeletionTimestamp == nil && (s.content.Status == nil || s.content.Status.CreationTime == nil)
}

// othersBeingTaken says whether another snapshot of the same claim has a content without data. It
// looks past the caches, which may lack a content that was made a moment ago.
func (r *Reconciler) othersBeingTaken(ctx context.Context, snapshot *snapshotv1.VolumeSnapshot) (bool, error) {
	var all snapshotv1.VolumeSnapshotList
	if err := r.live.List(ctx, &all, client.InNamespace(snapshot.Namespace)); err != nil {
		return false, fmt.Errorf("listing snapshots: %w", err)
	}
	for i := range all.Items {
		other := &all.Items[i]
		if other.UID == snapshot.UID || sourceClaim(other) != sourceClaim(snapshot) || other.DeletionTimestamp != nil {
			continue
		}
		if other.Status != nil && other.Status.CreationTime != nil {
			continue
		}
		err := r.live.Get(ctx, client.ObjectKey{Name: contentName(other)}, &snapshotv1.VolumeSnapshotContent{})
		if err == nil {
			return true, nil
		}
		if !apierrors.IsNotFound(err) {
			return false, fmt.Errorf("reading VolumeSnapshotContent %s: %w", contentName(other), err)
		}
	}
	return false, nil
}
