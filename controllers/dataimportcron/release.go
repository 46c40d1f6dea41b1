package dataimportcron

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
)

const kindClaim = "PersistentVolumeClaim"

// releaseClaim deletes the DataVolume and the claim of an import that is kept as a snapshot, once the DataSource
// names that and nobody needs the claim.
func (r *Reconciler) releaseClaim(ctx context.Context, s *scope) error {
	switch {
	case !s.snapshotted() || s.dv == nil && s.claim == nil:
		return nil
	case s.dv != nil && s.dv.DeletionTimestamp != nil || s.dv == nil && s.claim.DeletionTimestamp != nil:
		return nil
	case s.moved:
		s.sooner(goneRetry)
		return nil
	}
	named, err := r.namedNow(ctx, s)
	if err != nil {
		return err
	}
	if named.claim || !named.snapshot {
		s.sooner(lastRetry) // somebody else leads the DataSource
		return nil
	}
	needed, err := r.needed(ctx, s)
	if err != nil || needed {
		s.sooner(neededRetry)
		return err
	}
	if s.dv == nil {
		return r.discard(ctx, s.claim)
	}
	return r.discardImport(ctx, s.dv)
}

// discardImport deletes the DataVolume of an import, and with it the claim.
func (r *Reconciler) discardImport(ctx context.Context, dv *cdiv1.DataVolume) error {
	log.FromContext(ctx).Info("Deleting an import that is kept as a snapshot", "DataVolume", dv.Name)
	if err := r.Delete(ctx, dv, client.Preconditions{UID: &dv.UID}); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("deleting DataVolume %s, which is kept as a snapshot: %w", dv.Name, err)
	}
	return nil
}

// needed reports whether a claim that is not bound is to be made from the current import's, or a pod uses that. It reads
// past the cache, which has not all pods.
func (r *Reconciler) needed(ctx context.Context, s *scope) (bool, error) {
	if s.claim == nil {
		return false, nil
	}
	var claims corev1.PersistentVolumeClaimList
	if err := r.live.List(ctx, &claims, client.InNamespace(s.cron.Namespace)); err != nil {
		return false, fmt.Errorf("looking for clones of claim %s: %w", s.claim.Name, err)
	}
	for i := range claims.Items {
		if waitsFor(&claims.Items[i], s.claim.Name) {
			log.FromContext(ctx).V(1).Info("Leaving a claim until it is cloned", "claim", s.claim.Name, "clone", claims.Items[i].Name)
			return true, nil
		}
	}
	var pods corev1.PodList
	if err := r.live.List(ctx, &pods, client.InNamespace(s.cron.Namespace)); err != nil {
		return false, fmt.Errorf("looking for pods that use claim %s: %w", s.claim.Name, err)
	}
	for i := range pods.Items {
		if uses(&pods.Items[i], s.claim.Name) {
			log.FromContext(ctx).V(1).Info("Leaving a claim that is used", "claim", s.claim.Name, "pod", pods.Items[i].Name)
			return true, nil
		}
	}
	return false, nil
}

// waitsFor reports whether a claim is to be made from the claim source of its namespace, and is not yet.
func waitsFor(claim *corev1.PersistentVolumeClaim, source string) bool {
	if claim.Status.Phase != corev1.ClaimPending || claim.DeletionTimestamp != nil {
		return false
	}
	from, ref := claim.Spec.DataSource, claim.Spec.DataSourceRef
	return from != nil && from.Kind == kindClaim && from.Name == source ||
		ref != nil && ref.Kind == kindClaim && ref.Name == source && ptr.Deref(ref.Namespace, claim.Namespace) == claim.Namespace
}

// uses reports whether a pod that has not ended uses a claim of its namespace.
func uses(pod *corev1.Pod, claim string) bool {
	if pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed {
		return false
	}
	for i := range pod.Spec.Volumes {
		if from := pod.Spec.Volumes[i].PersistentVolumeClaim; from != nil && from.ClaimName == claim {
			return true
		}
	}
	return false
}
