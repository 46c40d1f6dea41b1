package hostpathprovisioner

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-vm/slipway/internal/names"
)

// claim returns the pool's claim on a node, which it makes when there is none. One that is there is left as it is, but
// grows when the template asks for more. There is none, nil, when the object goes and nothing on the node needs it.
func (r *Reconciler) claim(ctx context.Context, s *scope, h holder) (*corev1.PersistentVolumeClaim, error) {
	wanted, current := h.claim(r.options.Namespace), &corev1.PersistentVolumeClaim{}
	err := r.Get(ctx, client.ObjectKeyFromObject(wanted), current)
	if apierrors.IsNotFound(err) {
		if needed, err := r.needed(ctx, s, h); err != nil || !needed {
			return nil, err
		}
		return wanted, r.makeClaim(ctx, s, h, wanted)
	}
	if err != nil {
		return nil, fmt.Errorf("reading the claim %s of storage pool %s: %w", wanted.Name, h.pool.Name, err)
	}
	if current.Status.Phase == corev1.ClaimLost {
		s.degrade(ReasonLost, fmt.Sprintf("PersistentVolumeClaim %s/%s of storage pool %s lost its volume %s: delete the claims of the pool's volumes on node %s, then this one, and an empty one is made",
			current.Namespace, current.Name, h.pool.Name, current.Spec.VolumeName, h.node.Name))
		return current, nil
	}
	if field := differs(&wanted.Spec, &current.Spec); field != "" {
		s.degrade(ReasonConflict, fmt.Sprintf("PersistentVolumeClaim %s/%s has another %s than the pvcTemplate of storage pool %s: put the former template back, or add a pool of another name",
			current.Namespace, current.Name, field, h.pool.Name))
		return current, nil
	}
	return r.grow(ctx, s, h, wanted, current)
}

// needed tells whether a pool is to have a claim on a node: always, but while the object is being deleted only for what is left
// in the pool there. To delete that takes a claim, perhaps an empty one.
func (r *Reconciler) needed(ctx context.Context, s *scope, h holder) (bool, error) {
	if !s.deleting() {
		return true, nil
	}
	left, err := r.left(ctx, s, h.pool.Label(), h.node.Name)
	return left != "", err
}

// makeClaim makes a claim, but not in the place of one that held volumes which are in use: the empty one would be
// taken for it, and what is in the former be out of reach.
func (r *Reconciler) makeClaim(ctx context.Context, s *scope, h holder, wanted *corev1.PersistentVolumeClaim) error {
	volume, err := r.usedVolume(ctx, s, h)
	if err != nil {
		return err
	}
	if volume != "" {
		s.degrade(ReasonLost, fmt.Sprintf("PersistentVolumeClaim %s/%s of storage pool %s is gone, and held volumes such as %s: make it again, bound to the PersistentVolume that it had, or delete the claims of the pool's volumes on node %s, and an empty one is made",
			wanted.Namespace, wanted.Name, h.pool.Name, volume, h.node.Name))
		s.retry = true
		return nil
	}
	err = r.Create(ctx, wanted, client.FieldOwner(names.ManagerController))
	if apierrors.IsForbidden(err) || apierrors.IsInvalid(err) {
		s.degrade(ReasonConflict, fmt.Sprintf("PersistentVolumeClaim %s/%s of storage pool %s cannot be made; correct its pvcTemplate, or what forbids it: %v", wanted.Namespace, wanted.Name, h.pool.Name, err))
		s.retry = true // a quota may come to allow it
		return nil
	}
	if err != nil {
		return fmt.Errorf("making the claim %s of storage pool %s: %w", wanted.Name, h.pool.Name, err)
	}
	return nil
}

// grow has a claim ask for what the template asks for, if that is more. One that is not bound cannot yet.
func (r *Reconciler) grow(ctx context.Context, s *scope, h holder, wanted, current *corev1.PersistentVolumeClaim) (*corev1.PersistentVolumeClaim, error) {
	size := wanted.Spec.Resources.Requests.Storage()
	if size.Cmp(*current.Spec.Resources.Requests.Storage()) <= 0 || current.Status.Phase != corev1.ClaimBound {
		return current, nil
	}
	larger := current.DeepCopy()
	larger.Spec.Resources.Requests[corev1.ResourceStorage] = *size
	err := r.Patch(ctx, larger, client.MergeFrom(current), client.FieldOwner(names.ManagerController))
	if apierrors.IsForbidden(err) || apierrors.IsInvalid(err) {
		s.degrade(ReasonConflict, fmt.Sprintf("PersistentVolumeClaim %s/%s of storage pool %s cannot grow; let its pvcTemplate ask for what it has: %v", current.Namespace, current.Name, h.pool.Name, err))
		s.retry = true // its class may come to allow it
		return current, nil
	}
	if err != nil {
		return nil, fmt.Errorf("expanding the claim %s of storage pool %s: %w", current.Name, h.pool.Name, err)
	}
	return larger, nil
}

// leaves tells whether a pool's claim on a node may go, as somebody asked for, since no volume in it is in use: then
// it is let go, and made anew.
func (r *Reconciler) leaves(ctx context.Context, s *scope, h holder, claim *corev1.PersistentVolumeClaim) (bool, error) {
	if claim.DeletionTimestamp == nil {
		return false, nil
	}
	volume, err := r.usedVolume(ctx, s, h)
	if err != nil || volume == "" {
		return volume == "", err
	}
	s.degrade(ReasonLost, fmt.Sprintf("PersistentVolumeClaim %s/%s of storage pool %s is being deleted and goes when its pod does, with volumes such as %s: move what is in them to another pool and delete their claims",
		claim.Namespace, claim.Name, h.pool.Name, volume))
	s.retry = true
	return false, nil
}

// differs names what a claim, which cannot change it, has otherwise than is wanted.
func differs(wanted, current *corev1.PersistentVolumeClaimSpec) string {
	switch {
	case wanted.StorageClassName != nil && *wanted.StorageClassName != ptr.Deref(current.StorageClassName, ""):
		return "storageClassName"
	case ptr.Deref(current.VolumeMode, corev1.PersistentVolumeFilesystem) != corev1.PersistentVolumeFilesystem:
		return "volumeMode"
	case !equality.Semantic.DeepEqual(wanted.Selector, current.Selector):
		return "selector"
	}
	return ""
}
