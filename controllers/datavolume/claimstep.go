package datavolume

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/slipway-vm/slipway/internal/apply"
	"github.com/slipway-vm/slipway/internal/clonesource"
	"github.com/slipway-vm/slipway/internal/population"
	"github.com/slipway-vm/slipway/internal/steps"
)

// ensureClaim creates the claim, once everything that it is built from stands. A claim
// that exists is never changed, for its size may have been raised since.
func (r *Reconciler) ensureClaim(ctx context.Context, s *scope) error {
	if s.failed != nil {
		return steps.ErrDone
	}
	if s.claim != nil || claimName(s.dv) != s.dv.Name {
		return r.checkClaim(ctx, s)
	}
	if isRestored(s.dv) {
		s.waiting = &obstacle{reasonPending, fmt.Sprintf("PVC %s, which has the disk by annotation %s, is not there yet", s.dv.Name, AnnotationPrePopulated)}
		return steps.ErrDone
	}
	input := claimInput{DataVolume: s.dv, Class: s.class, Config: s.config}
	if made, err := r.claimPrepared(ctx, s, input); err != nil || made {
		return err
	}
	if s.plan.kind == kindClone {
		if err := r.prepareClone(ctx, s, &input); err != nil {
			return err
		}
	}
	if err := r.profile(ctx, s, &input); err != nil {
		return err
	}
	claim, err := buildClaim(input)
	if err != nil {
		return cannotClaim(s, input, err)
	}
	if claim, err = r.bringAbout(ctx, s, &input, claim); err != nil {
		return err
	}
	log.FromContext(ctx).Info("Creating the claim", "size", claim.Spec.Resources.Requests.Storage())
	if err := r.create(ctx, s, claim); err != nil {
		return err
	}
	claim.Status.Phase = corev1.ClaimPending
	s.claim = claim
	if s.class == nil {
		if s.class, err = r.classOf(ctx, s); err != nil {
			return err
		}
	}
	r.tellFallback(s)
	return r.recognizeCopy(ctx, s)
}

// cannotClaim ends the pass on what stands in the way of the claim.
func cannotClaim(s *scope, input claimInput, err error) error {
	if unknown, ok := errors.AsType[*unknownModes](err); ok {
		s.waiting = unknown.obstacle()
		return steps.ErrDone
	}
	s.failed = &obstacle{reasonInvalidClone, err.Error()}
	if input.Source == nil {
		s.failed.reason = reasonUnsupported
	}
	return steps.ErrDone
}

// bringAbout returns the claim to create when what it is cloned from stands: a snapshot of the source where clones
// are made through one, a claim of a snapshot that is copied, and the volume itself where the source is in another namespace.
func (r *Reconciler) bringAbout(ctx context.Context, s *scope, input *claimInput, claim *corev1.PersistentVolumeClaim) (*corev1.PersistentVolumeClaim, error) {
	if input.Source == nil {
		return claim, nil
	}
	s.copied = isCopy(claim)
	if s.way.settled() { // it goes on as it began
		input.Source = s.way.source(input.Source)
		s.origin = input.Source
		if s.copied {
			setAll(&claim.Annotations, copyNotes(input.Source))
		}
		return claim, r.bringVolume(ctx, s, input.Source, claim)
	}
	claim, err := r.restore(ctx, s, input, claim)
	if err != nil {
		return nil, err
	}
	if isCopy(claim) && !input.Source.bound {
		s.waiting = &obstacle{reasonSourceUnready, fmt.Sprintf("Source PVC %s is not bound; it is copied once it is", input.Source.Claim)}
		return nil, steps.ErrDone
	}
	if claim, err = r.throughSnapshot(ctx, s, input, claim); err != nil || input.Source.Key().Namespace == s.dv.Namespace {
		return claim, err
	}
	return claim, r.bringVolume(ctx, s, input.Source, claim)
}

// prepareClone adds to input what is cloned, once it is ready for that, and how.
func (r *Reconciler) prepareClone(ctx context.Context, s *scope, input *claimInput) error {
	if err := r.cloneSource(ctx, s, input); err != nil {
		return err
	}
	if err := r.chooseStrategy(ctx, s, input); err != nil || input.Source.Key().Namespace == s.dv.Namespace {
		return err
	}
	var err error
	s.way, err = r.onTheWay(ctx, s, input.Source)
	input.Begun = s.way.manner()
	return err
}

// checkClaim ends the pass on a claim that is not the DataVolume's, unless it may take it over, and
// without the claim that a populator has the DataVolume fill.
func (r *Reconciler) checkClaim(ctx context.Context, s *scope) error {
	if s.claim == nil {
		s.waiting = &obstacle{reasonNotFound, fmt.Sprintf("PVC %s, which the DataVolume is to fill, is not there", claimName(s.dv))}
		return steps.ErrDone // the DataVolume goes, too
	}
	if s.claim.DeletionTimestamp != nil {
		s.waiting = &obstacle{reasonPending, fmt.Sprintf("PVC %s is being deleted", s.claim.Name)}
		return steps.ErrDone
	}
	if s.ours() {
		return nil
	}
	if population.Awaited(s.claim) {
		s.waiting = &obstacle{reasonExists, fmt.Sprintf(
			"Resource %q already exists and is yet to be filled by its %s; delete it, or take its disk over once it is whole", s.claim.Name, population.Source(s.claim))}
		return steps.ErrDone
	}
	if metav1.GetControllerOf(s.claim) != nil || !s.mayAdopt() {
		s.waiting = &obstacle{reasonExists, fmt.Sprintf(
			"Resource %q already exists and is not managed by DataVolume; delete it, or annotate it with %s=true to take its disk over", s.claim.Name, AnnotationAdopt)}
		return steps.ErrDone
	}
	log.FromContext(ctx).Info("Taking over the claim")
	err := apply.Fields(ctx, r.Client, s.claim, managerImporter, map[string]any{"metadata": map[string]any{
		"ownerReferences": []metav1.OwnerReference{owner(s.dv)},
		"annotations":     map[string]string{AnnotationPodPhase: phaseSucceeded},
	}})
	if err != nil {
		return fmt.Errorf("taking over claim %s: %w", s.claim.Name, err)
	}
	s.claim.OwnerReferences = append(s.claim.OwnerReferences, owner(s.dv))
	setAll(&s.claim.Annotations, map[string]string{AnnotationPodPhase: phaseSucceeded})
	return nil
}

// mayAdopt reports whether the claim, which is not the DataVolume's own, may become that, with the disk in it.
func (s *scope) mayAdopt() bool {
	if s.claim.Name != s.dv.Name {
		return false
	}
	if isPopulated(s.claim) || s.claim.Annotations[AnnotationAdopt] == valueTrue {
		return true
	}
	if asked, said := s.dv.Annotations[AnnotationAdopt]; said { // whatever the gate says
		return asked == valueTrue
	}
	return s.adopts
}

// cloneSource finds the claim or snapshot to clone and waits until it is filled.
func (r *Reconciler) cloneSource(ctx context.Context, s *scope, input *claimInput) error {
	from, err := r.named(ctx, s)
	var missing *clonesource.Obstacle
	switch {
	case errors.As(err, &missing) && missing.Final:
		s.failed = &obstacle{reasonUnsupported, missing.Message}
		return steps.ErrDone
	case errors.As(err, &missing) && missing.Missing:
		s.waiting = &obstacle{reasonSourceMissing, missing.Message}
		return steps.ErrDone
	case errors.As(err, &missing):
		s.waiting = &obstacle{reasonUnsupported, missing.Message}
		return steps.ErrDone
	case err != nil:
		return fmt.Errorf("finding what DataVolume %s clones: %w", s.dv.Name, err)
	}
	if from, err = r.withLeave(ctx, s, from); err != nil {
		return err
	}
	source, labels, err := r.readSource(ctx, s, from)
	if err != nil {
		return err
	}
	setAll(&labels, from.Labels) // a DataSource knows better than what it names
	input.Source, input.Labels, s.origin = source, labels, source
	return nil
}

// claimSource reads the claim that is cloned, and waits until it is filled.
func (r *Reconciler) claimSource(ctx context.Context, s *scope, from *clonesource.Source) (*origin, map[string]string, error) {
	claim, err := get(ctx, r.Client, from.Claim, &corev1.PersistentVolumeClaim{})
	if err != nil {
		return nil, nil, err
	}
	if claim == nil {
		s.waiting = &obstacle{reasonSourceMissing, fmt.Sprintf("Source PVC %s not found; it is cloned once it exists", from.Claim)}
		return nil, nil, steps.ErrDone
	}
	if by := metav1.GetControllerOf(claim); by != nil && by.Kind == kindDataVolume && claim.Annotations[AnnotationPodPhase] != phaseSucceeded {
		s.waiting = &obstacle{reasonSourceUnready, fmt.Sprintf("Source PVC %s is not filled yet; it is cloned once DataVolume %s has succeeded", from.Claim, by.Name)}
		return nil, nil, steps.ErrDone
	}
	if population.Awaited(claim) {
		s.waiting = &obstacle{reasonSourceUnready, fmt.Sprintf("Source PVC %s is not filled yet; it is cloned once its populator has done so", from.Claim)}
		return nil, nil, steps.ErrDone
	}
	source := originOf(claim)
	source.driverless, err = r.driverless(ctx, claim)
	return source, clonesource.Defaults(claim.Labels), err
}
