package resizer

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-vm/slipway/internal/names"
	"github.com/slipway-vm/slipway/runtime/hostpath/provisioner"
)

// Reasons of events and of the condition, in the field's words.
const (
	reasonDone   = "VolumeResizeSuccessful"
	reasonFailed = "VolumeResizeFailed"
)

// conditions are those of a claim that is being expanded, which end with it.
var conditions = []corev1.PersistentVolumeClaimConditionType{ //nolint:gochecknoglobals // a list
	corev1.PersistentVolumeClaimResizing, corev1.PersistentVolumeClaimFileSystemResizePending,
	corev1.PersistentVolumeClaimControllerResizeError, corev1.PersistentVolumeClaimNodeResizeError,
}

// growing says that a claim asks for more than it has.
func growing(claim *corev1.PersistentVolumeClaim) bool {
	has, known := claim.Status.Capacity[corev1.ResourceStorage]
	return known && claim.DeletionTimestamp == nil && claim.Status.Phase == corev1.ClaimBound &&
		claim.Spec.Resources.Requests.Storage().Cmp(has) > 0
}

// complains says that a claim tells of an expansion that failed.
func complains(claim *corev1.PersistentVolumeClaim) bool { return complaint(claim) != nil }

func complaint(claim *corev1.PersistentVolumeClaim) *corev1.PersistentVolumeClaimCondition {
	for i := range claim.Status.Conditions {
		if claim.Status.Conditions[i].Type == corev1.PersistentVolumeClaimControllerResizeError {
			return &claim.Status.Conditions[i]
		}
	}
	return nil
}

// reconcile expands the volume of one claim, when it is this node's.
func (r *Resizer) reconcile(ctx context.Context, key cache.ObjectName) error {
	claim, err := r.claims.PersistentVolumeClaims(key.Namespace).Get(key.Name)
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("reading claim %s: %w", key, err)
	}
	volume, err := r.volumeOf(claim)
	if err != nil || volume == nil {
		return err
	}
	if !growing(claim) {
		if complains(claim) && claim.DeletionTimestamp == nil { // what was asked for was taken back
			return r.settle(ctx, claim, *claim.Status.Capacity.Storage())
		}
		return nil
	}
	size, err := r.expand(ctx, claim, volume)
	if err != nil {
		return r.failed(ctx, claim, err)
	}
	if err := r.settle(ctx, claim, size); err != nil {
		return err
	}
	r.tell.Eventf(claim, nil, corev1.EventTypeNormal, reasonDone, "Resize", "The volume has %s", size.String())
	return nil
}

// volumeOf returns the volume that a claim is bound to, nil when it is not one of this node's.
func (r *Resizer) volumeOf(claim *corev1.PersistentVolumeClaim) (*corev1.PersistentVolume, error) {
	volume, err := r.known.Get(claim.Spec.VolumeName)
	if apierrors.IsNotFound(err) {
		return nil, nil // it brings the claim back
	}
	if err != nil {
		return nil, fmt.Errorf("reading volume %s: %w", claim.Spec.VolumeName, err)
	}
	ours := volume.Spec.CSI != nil && volume.Spec.CSI.Driver == r.options.Driver &&
		provisioner.NodeOf(volume, r.options.TopologyKey) == r.options.NodeName &&
		volume.Spec.ClaimRef != nil && volume.Spec.ClaimRef.UID == claim.UID
	if !ours {
		return nil, nil
	}
	return volume, nil
}

// expand makes the volume as large as the claim asks for, and the PersistentVolume say so.
func (r *Resizer) expand(ctx context.Context, claim *corev1.PersistentVolumeClaim, volume *corev1.PersistentVolume) (resource.Quantity, error) {
	asked := claim.Spec.Resources.Requests.Storage()
	response, err := r.volumes.ControllerExpandVolume(ctx, &csi.ControllerExpandVolumeRequest{
		VolumeId: volume.Spec.CSI.VolumeHandle,
		CapacityRange: &csi.CapacityRange{
			RequiredBytes: asked.Value(), LimitBytes: claim.Spec.Resources.Limits.Storage().Value(),
		},
	})
	if err != nil {
		return resource.Quantity{}, err //nolint:wrapcheck // its text is the event's, its code decides what comes next
	}
	size := *resource.NewQuantity(response.GetCapacityBytes(), resource.BinarySI)
	if volume.Spec.Capacity.Storage().Cmp(size) >= 0 {
		return size, nil
	}
	changed := volume.DeepCopy()
	changed.Spec.Capacity[corev1.ResourceStorage] = size
	if err := r.objects.Patch(ctx, changed, client.MergeFrom(volume), client.FieldOwner(names.ManagerHandler)); err != nil {
		return size, fmt.Errorf("writing the size of volume %s: %w", volume.Name, err)
	}
	return size, nil
}

// settle writes into the claim what its volume has, and that nothing is under way any more.
func (r *Resizer) settle(ctx context.Context, claim *corev1.PersistentVolumeClaim, size resource.Quantity) error {
	changed := claim.DeepCopy()
	if changed.Status.Capacity == nil {
		changed.Status.Capacity = corev1.ResourceList{}
	}
	changed.Status.Capacity[corev1.ResourceStorage] = size
	changed.Status.AllocatedResources = corev1.ResourceList{corev1.ResourceStorage: size}
	delete(changed.Status.AllocatedResourceStatuses, corev1.ResourceStorage)
	changed.Status.Conditions = slices.DeleteFunc(changed.Status.Conditions, func(c corev1.PersistentVolumeClaimCondition) bool {
		return slices.Contains(conditions, c.Type)
	})
	return r.write(ctx, claim, changed)
}

// failed says in the claim, and once in an event, why its volume does not grow, and returns it, so that it is tried again.
func (r *Resizer) failed(ctx context.Context, claim *corev1.PersistentVolumeClaim, cause error) error {
	if ctx.Err() != nil || status.Code(cause) == codes.Aborted || apierrors.IsConflict(cause) {
		return cause // this process ends, or another call is under way: neither is the user's concern
	}
	words := cause.Error()
	if known, ok := status.FromError(cause); ok {
		words = known.Message()
	}
	now := complaint(claim)
	if now != nil && now.Message == words {
		return cause
	}
	r.tell.Eventf(claim, nil, corev1.EventTypeWarning, reasonFailed, "Resize", "%s", words)
	changed := claim.DeepCopy()
	changed.Status.Conditions = append(slices.DeleteFunc(changed.Status.Conditions, func(c corev1.PersistentVolumeClaimCondition) bool {
		return c.Type == corev1.PersistentVolumeClaimControllerResizeError
	}), corev1.PersistentVolumeClaimCondition{
		Type: corev1.PersistentVolumeClaimControllerResizeError, Status: corev1.ConditionTrue,
		LastTransitionTime: metav1.Now(), Reason: reasonFailed, Message: words,
	})
	return errors.Join(cause, r.write(ctx, claim, changed))
}

func (r *Resizer) write(ctx context.Context, before, changed *corev1.PersistentVolumeClaim) error {
	patch := client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})
	err := r.objects.Status().Patch(ctx, changed, patch, client.FieldOwner(names.ManagerHandler))
	if apierrors.IsForbidden(err) {
		err = fmt.Errorf("%w; a claim that was bound by hand needs the annotation volume.kubernetes.io/selected-node: %s", err, r.options.NodeName)
		r.tell.Eventf(before, nil, corev1.EventTypeWarning, reasonFailed, "Resize", "%v", err)
	}
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("writing the size of claim %s/%s: %w", before.Namespace, before.Name, err)
	}
	return nil
}
