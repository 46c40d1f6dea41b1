package virtualmachineinstance

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	virtv1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/slipway-vm/slipway/controllers/volumemigration"
	"github.com/slipway-vm/slipway/internal/names"
)

// waitForMigrations says onto which of the VMI's claims the disk of a VM is being copied: until that has ended they hold a part of it.
func (r *Reconciler) waitForMigrations(ctx context.Context, s *scope) ([]lack, error) {
	var missing []lack
	for _, v := range s.volumes {
		pod := &corev1.Pod{}
		key := client.ObjectKey{Namespace: s.vmi.Namespace, Name: volumemigration.PodName(v.claim)}
		err := r.Get(ctx, key, pod)
		if apierrors.IsNotFound(err) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("looking for the pod that copies onto claim %s/%s: %w", s.vmi.Namespace, v.claim, err)
		}
		if copies(pod) {
			missing = append(missing, lack{needHelp, ReasonClaimInUse, fmt.Sprintf(
				"PVC %s is being filled with the disk of another claim by pod %s; waiting until that has ended", v.claim, pod.Name)})
		}
	}
	return missing, nil
}

// copies says whether pod copies a disk onto a claim, and has not ended.
func copies(pod *corev1.Pod) bool {
	return pod.Labels[names.LabelPod] == volumemigration.KindPod && pod.Status.Phase != corev1.PodSucceeded && pod.Status.Phase != corev1.PodFailed
}

// filledBy are the VMIs that may have waited for obj, a pod that copies and ends, to let go of its claims.
func (r *Reconciler) filledBy(ctx context.Context, obj client.Object) []reconcile.Request {
	pod, ok := obj.(*corev1.Pod)
	if !ok || pod.Labels[names.LabelPod] != volumemigration.KindPod || pod.DeletionTimestamp == nil && copies(pod) {
		return nil
	}
	var found []reconcile.Request
	for _, volume := range pod.Spec.Volumes {
		if claim := volume.PersistentVolumeClaim; claim != nil {
			found = append(found, r.requests(ctx, (*virtv1.VirtualMachineInstance).IsUnprocessed,
				client.InNamespace(pod.Namespace), client.MatchingFields{claimIndex: claim.ClaimName})...)
		}
	}
	return found
}
