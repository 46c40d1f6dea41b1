package populator

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/slipway-vm/slipway/controllers/datavolume"
	"github.com/slipway-vm/slipway/internal/apply"
	"github.com/slipway-vm/slipway/internal/names"
	"github.com/slipway-vm/slipway/internal/namespace"
	"github.com/slipway-vm/slipway/internal/population"
	"github.com/slipway-vm/slipway/internal/steps"
)

// release takes away what fills a claim that is to go: the claim stays as long as a pod uses it.
func (r *Reconciler) release(ctx context.Context, s *scope) error {
	if s.claim.DeletionTimestamp == nil {
		return nil
	}
	return r.end(ctx, s)
}

// finish ends the pass on a claim that needs nothing more: one that is whole and bound, or one whose
// volume is not from here.
func (r *Reconciler) finish(ctx context.Context, s *scope) error {
	switch {
	case !s.bound(), s.inPlace && !s.recorded():
		return nil
	case s.overlooked():
		return r.end(ctx, s)
	case !s.chosen && s.settled(r.now()):
		s.quiet = true
		return steps.ErrDone
	case !s.chosen:
		return nil // choose looks into it
	case s.claim.Status.Phase != corev1.ClaimBound:
		s.quiet = true
		return steps.ErrDone // it is being bound
	case s.inPlace && s.claim.Annotations[population.AnnotationProgress] != progressDone:
		s.whole = true
		return steps.ErrDone // to be noted first
	case !s.recorded() && s.prime != nil:
		s.prime, s.other = nil, nil // which the next pass takes away
		return s.refuse(reasonOverlooked, fmt.Sprintf(
			"the claim was bound to volume %s before its disk was whole; it is not filled. Delete it and create it again", s.claim.Spec.VolumeName))
	case s.recorded() && s.claim.Annotations[datavolume.AnnotationRetain] == valueTrue:
		s.quiet = true
		return steps.ErrDone
	}
	return r.end(ctx, s)
}

// settled reports whether the volume that the claim has is left alone, although nobody decided how it is filled: it may hold data.
func (s *scope) settled(now time.Time) bool {
	return s.kind != population.Target && (!population.Late(s.claim, now) || s.phase() == cdiv1.Succeeded)
}

// overlooked reports whether it is noted on the claim that somebody else was first.
func (s *scope) overlooked() bool {
	return population.Refused(s.claim) && s.claim.Annotations[annotationRunningReason] == reasonOverlooked
}

// end ends the pass for good: nothing is noted any more, and what fills the claim goes.
func (r *Reconciler) end(ctx context.Context, s *scope) error {
	s.quiet = true
	if err := r.removePrime(ctx, s); err != nil {
		return err
	}
	return steps.ErrDone
}

// awaitBinding ends the pass on a claim that a volume was given to already, although what filled that is gone.
func (r *Reconciler) awaitBinding(ctx context.Context, s *scope) error {
	if !s.recorded() || s.inPlace || s.bound() || s.deliverable() {
		return nil
	}
	var volumes corev1.PersistentVolumeList
	if err := r.live.List(ctx, &volumes); err != nil {
		return fmt.Errorf("looking for the volume of claim %s: %w", s.claim.Name, err)
	}
	for n := range volumes.Items {
		if ref := volumes.Items[n].Spec.ClaimRef; ref != nil && ref.UID == s.claim.UID {
			s.quiet = true
			return steps.ErrDone // Kubernetes binds them
		}
	}
	return nil
}

// removePrime deletes the DataVolume, with which its pod and its claim go.
func (r *Reconciler) removePrime(ctx context.Context, s *scope) error {
	if s.prime == nil || s.prime.DeletionTimestamp != nil {
		return nil
	}
	log.FromContext(ctx).Info("Deleting what has filled the claim", "dataVolume", s.prime.Name)
	if err := r.Delete(ctx, s.prime, client.Preconditions{UID: &s.prime.UID}); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("deleting DataVolume %s: %w", s.prime.Name, err)
	}
	return nil
}

// refuse ends the pass on what cannot be filled.
func (r *Reconciler) refuse(_ context.Context, s *scope) error {
	ref := s.claim.Spec.DataSourceRef // none of the target of an upload
	switch {
	case ref != nil && ref.Namespace != nil && *ref.Namespace != s.claim.Namespace:
		return s.refuse(reasonUnsupported, fmt.Sprintf("spec.dataSourceRef.namespace %s is not supported; name a %s of the claim's own namespace", *ref.Namespace, s.kind))
	case s.waiting != nil:
		return s.refuse(s.waiting.reason, s.waiting.message)
	}
	return nil
}

// ensurePrime makes the DataVolume, once the source is there and a consumer of the claim has a node.
func (r *Reconciler) ensurePrime(ctx context.Context, s *scope) error {
	if s.prime != nil {
		return r.hurryPrime(ctx, s)
	}
	if !s.inPlace && s.waitsForConsumer() {
		s.waiting = &obstacle{reasonPending, "the claim is filled once a pod that uses it has a node"}
		return steps.ErrDone
	}
	input := primeInput{Claim: s.claim, InPlace: s.inPlace}
	if err := r.source(ctx, s, &input); err != nil {
		return err
	}
	if err := r.checkUnfilled(ctx, s); err != nil {
		return err
	}
	return r.createPrime(ctx, s, buildPrime(input))
}

// hurryPrime tells the DataVolume that fills the claim that it is to be bound at once, when that was asked for after it
// was made. Another claim is bound at once as it is.
func (r *Reconciler) hurryPrime(ctx context.Context, s *scope) error {
	if !s.inPlace || !immediate(s.claim) || immediate(s.prime) {
		return nil
	}
	notes := map[string]any{"annotations": map[string]string{names.AnnotationBind: valueTrue}}
	if err := apply.Fields(ctx, r.Client, s.prime, manager, map[string]any{"metadata": notes}); err != nil {
		return fmt.Errorf("telling DataVolume %s to be bound at once: %w", s.prime.Name, err)
	}
	return nil
}

// checkUnfilled makes sure that the claim is still to be filled, past the cache.
func (r *Reconciler) checkUnfilled(ctx context.Context, s *scope) error {
	claim, err := get(ctx, r.live, client.ObjectKeyFromObject(s.claim), &corev1.PersistentVolumeClaim{})
	if err != nil {
		return err
	}
	if claim == nil || claim.UID != s.claim.UID || claim.DeletionTimestamp != nil ||
		claim.Annotations[datavolume.AnnotationPodPhase] != s.claim.Annotations[datavolume.AnnotationPodPhase] || !s.inPlace && claim.Spec.VolumeName != "" {
		return errStale
	}
	return nil
}

// createPrime creates the DataVolume, or says why that is refused.
func (r *Reconciler) createPrime(ctx context.Context, s *scope, prime *cdiv1.DataVolume) error {
	err := r.Create(ctx, prime, client.FieldOwner(names.ManagerData))
	switch {
	case apierrors.IsAlreadyExists(err):
		return errStale
	case namespace.Ending(err):
		s.quiet = true
		return steps.ErrDone // the claim goes, too
	case apierrors.IsInvalid(err), apierrors.IsForbidden(err), apierrors.IsBadRequest(err):
		s.waiting = &obstacle{reasonNotCreated, err.Error()}
		s.result.RequeueAfter = refusedRetry
		return steps.ErrDone
	case err != nil:
		return fmt.Errorf("creating DataVolume %s: %w", prime.Name, err)
	}
	if !s.inPlace {
		r.events.Eventf(s.claim, nil, corev1.EventTypeNormal, reasonCreated, eventAction, "PVC Prime created successfully")
	}
	s.prime = prime
	return nil
}

// source reads what the claim's dataSourceRef names; of the target of an upload, what its annotations say.
func (r *Reconciler) source(ctx context.Context, s *scope, input *primeInput) error {
	if s.kind == population.Target {
		return r.target(ctx, s, input)
	}
	key := types.NamespacedName{Namespace: s.claim.Namespace, Name: s.claim.Spec.DataSourceRef.Name}
	var err error
	switch s.kind {
	case cdiv1.VolumeCloneSourceRef:
		input.Clone, err = get(ctx, r.Client, key, &cdiv1.VolumeCloneSource{})
	case cdiv1.VolumeUploadSourceRef:
		input.Upload, err = get(ctx, r.Client, key, &cdiv1.VolumeUploadSource{})
	default:
		input.Import, err = get(ctx, r.Client, key, &cdiv1.VolumeImportSource{})
	}
	if err != nil {
		return err
	}
	if input.Clone == nil && input.Import == nil && input.Upload == nil {
		s.waiting = &obstacle{reasonPending, fmt.Sprintf("%s %s not found; the claim is filled once it exists", s.kind, key.Name)}
		return steps.ErrDone
	}
	return nil
}
