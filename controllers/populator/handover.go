package populator

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/slipway-vm/slipway/controllers/datavolume"
	"github.com/slipway-vm/slipway/controllers/handover"
	"github.com/slipway-vm/slipway/internal/population"
	"github.com/slipway-vm/slipway/internal/upload"
)

// handOver gives the volume of the other claim, once that is whole, to the claim: by one write, after
// which Kubernetes binds the two. That the disk is whole is noted before, so that no one sees the
// claim bound without it. Whoever goes at whichever moment, the volume belongs to one claim: with
// that it is reclaimed.
func (r *Reconciler) handOver(ctx context.Context, s *scope) error {
	if !s.deliverable() {
		return nil
	}
	volume := &corev1.PersistentVolume{}
	if err := r.live.Get(ctx, types.NamespacedName{Name: s.other.Spec.VolumeName}, volume); err != nil {
		return fmt.Errorf("reading the volume of claim %s: %w", s.other.Name, err)
	}
	s.node = datavolume.NodeOf(volume) // whose virt-handler then may expand the claim
	ref := volume.Spec.ClaimRef
	if ref != nil && ref.UID == s.claim.UID {
		s.whole = true
		return nil // Kubernetes binds them
	}
	if ref == nil || ref.UID != s.other.UID {
		s.waiting = &obstacle{reasonError, fmt.Sprintf("volume %s, which has the disk, was given to another claim; delete the claim and create it again", volume.Name)}
		return nil
	}
	if err := r.checkBoth(ctx, s); err != nil {
		return err
	}
	if busy, err := r.podWorks(ctx, s); err != nil || busy {
		s.result.RequeueAfter = staleRetry
		return err
	}
	s.whole = true
	if err := r.writeNotes(ctx, s); err != nil {
		return err
	}
	s.quiet = true
	log.FromContext(ctx).Info("Handing the volume over", "volume", volume.Name, "from", s.other.Name)
	return handover.Give(ctx, r.Client, volume, s.claim, manager)
}

// deliverable reports whether the other claim is whole, and the claim has no volume yet.
func (s *scope) deliverable() bool {
	return !s.inPlace && s.phase() == cdiv1.Succeeded && s.prime.DeletionTimestamp == nil &&
		s.other != nil && s.other.Spec.VolumeName != "" && !s.bound()
}

// checkBoth makes sure, past the cache, that the claim has no volume yet and the other one has it still:
// what is being deleted takes its volume along.
func (r *Reconciler) checkBoth(ctx context.Context, s *scope) error {
	for _, read := range []*corev1.PersistentVolumeClaim{s.claim, s.other} {
		live, err := get(ctx, r.live, client.ObjectKeyFromObject(read), &corev1.PersistentVolumeClaim{})
		if err != nil {
			return err
		}
		if live == nil || live.UID != read.UID || live.DeletionTimestamp != nil || live.Spec.VolumeName != read.Spec.VolumeName {
			return errStale
		}
	}
	return nil
}

// worker reads the pod that fills a claim, or gets it bound; nil when there is none.
func (r *Reconciler) worker(ctx context.Context, from client.Reader, s *scope) (*corev1.Pod, error) {
	prime := population.PrimeName(s.claim)
	key := types.NamespacedName{Namespace: s.claim.Namespace, Name: datavolume.PodName(prime)}
	if s.kind == cdiv1.VolumeUploadSourceRef || s.kind == population.Target {
		key.Name = upload.ServerName(prime)
	}
	return get(ctx, from, key, &corev1.Pod{})
}

// podWorks reports whether the pod that filled the other claim still has it mounted.
func (r *Reconciler) podWorks(ctx context.Context, s *scope) (bool, error) {
	pod, err := r.worker(ctx, r.Client, s)
	if err != nil || pod == nil {
		return false, err
	}
	return pod.Status.Phase != corev1.PodSucceeded && pod.Status.Phase != corev1.PodFailed, nil
}
