package populator

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/slipway-vm/slipway/internal/population"
	"github.com/slipway-vm/slipway/internal/steps"
)

// choose decides how the claim is filled, and notes it: by another claim, whose volume it gets, where
// its storage is a CSI driver's, which leave such a claim alone; in place where it is not. A copy of
// another claim's annotations counts for nothing. The target of an upload is filled in place, whatever its storage.
func (r *Reconciler) choose(ctx context.Context, s *scope) error {
	if s.chosen {
		return nil
	}
	name := s.claim.Spec.StorageClassName
	switch {
	case name == nil && !s.bound():
		s.waiting = &obstacle{reasonPending, "the claim names no storage class and the cluster has no default one; it is filled once it has one"}
		return steps.ErrDone
	case name != nil && *name != "" && s.class == nil && !s.bound(): // volumes made by hand need none
		s.waiting = &obstacle{reasonPending, fmt.Sprintf("storage class %s does not exist; the claim is filled once it does", *name)}
		return steps.ErrDone
	}
	waits, err := r.driverWaits(ctx, s)
	if err != nil {
		return err
	}
	if err := r.checkStorage(ctx, s, waits); err != nil {
		return err
	}
	before := s.claim.DeepCopy()
	s.claim.Annotations = withoutRecord(s.claim.Annotations)
	s.claim.Annotations[population.AnnotationUse] = map[bool]string{true: valueTrue, false: "false"}[waits]
	s.claim.Annotations[population.AnnotationFilledBy] = population.PrimeName(s.claim)
	log.FromContext(ctx).Info("Filling the claim", "source", s.kind, "inPlace", !waits)
	err = r.Patch(ctx, s.claim, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}), client.FieldOwner(manager))
	if err != nil {
		return fmt.Errorf("noting how claim %s is filled: %w", s.claim.Name, err)
	}
	s.chosen, s.inPlace = true, !waits
	return nil
}

// driverWaits reports whether the claim's storage is a CSI driver's, which leaves it alone.
func (r *Reconciler) driverWaits(ctx context.Context, s *scope) (bool, error) {
	if s.kind == population.Target {
		return false, nil // its storage gives it an empty volume at once: it knows nothing of uploads
	}
	driver := s.claim.Annotations[annotationMigratedTo]
	if driver == "" && s.class != nil {
		driver = s.class.Provisioner
	}
	if driver == "" {
		return false, nil
	}
	found, err := get(ctx, r.Client, types.NamespacedName{Name: driver}, &storagev1.CSIDriver{})
	return found != nil, err
}

// checkStorage ends the pass on a claim that its storage, or somebody else, keeps from being filled. waits says
// that the storage is a CSI driver's.
func (r *Reconciler) checkStorage(ctx context.Context, s *scope, waits bool) error {
	if !waits && s.kind == cdiv1.VolumeCloneSourceRef {
		return s.refuse(reasonUnsupported, "the claim's storage has no CSI driver, and binds the claim without its clone; clone with a DataVolume, or name a storage class that has one")
	}
	if !s.bound() || s.kind == population.Target { // of that its user says that it is written over
		return nil
	}
	if waits { // somebody who does not wait although he should
		return s.refuse(reasonOverlooked, fmt.Sprintf("the claim was bound to volume %s before it could be filled; delete it and create it again", s.claim.Spec.VolumeName))
	}
	user, err := r.user(ctx, s)
	if err == nil && user != "" {
		return s.refuse(reasonOverlooked, fmt.Sprintf("pod %s uses the claim, which was bound before it could be filled, and may have written to it; delete both and create them again", user))
	}
	return err
}

// user names a pod that has, or had, the claim mounted, past the cache; but not what fills it. A pod without a node has
// written nothing.
func (r *Reconciler) user(ctx context.Context, s *scope) (string, error) {
	var pods corev1.PodList
	if err := r.live.List(ctx, &pods, client.InNamespace(s.claim.Namespace)); err != nil {
		return "", fmt.Errorf("looking for pods that use claim %s: %w", s.claim.Name, err)
	}
	for n := range pods.Items {
		pod := &pods.Items[n]
		if pod.Spec.NodeName == "" || s.prime != nil && metav1.IsControlledBy(pod, s.prime) {
			continue
		}
		if population.Uses(pod, s.claim) {
			return pod.Name, nil
		}
	}
	return "", nil
}

// reconsider lets it be decided anew about a claim that was to be filled in place, and whose storage is a CSI
// driver's by now: that gives it no volume. What was to fill it goes first.
func (r *Reconciler) reconsider(ctx context.Context, s *scope) error {
	if !s.inPlace || s.bound() || s.recorded() {
		return nil
	}
	waits, err := r.driverWaits(ctx, s)
	if err != nil || !waits {
		return err
	}
	if s.prime != nil {
		return r.end(ctx, s) // its end brings the next pass
	}
	pod, err := r.worker(ctx, r.live, s)
	if err != nil {
		return err
	}
	if pod != nil { // it would write to the volume that the claim is given
		s.quiet, s.result.RequeueAfter = true, staleRetry
		return steps.ErrDone
	}
	s.chosen, s.inPlace = false, false
	return nil
}
