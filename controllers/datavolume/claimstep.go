package datavolume

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/slipway-vm/slipway/internal/apply"
	"github.com/slipway-vm/slipway/internal/steps"
)

// ensureClaim creates the claim, once everything that it is built from stands. A claim
// that exists is never changed, for its size may have been raised since.
func (r *Reconciler) ensureClaim(ctx context.Context, s *scope) error {
	if s.failed != nil {
		return steps.ErrDone
	}
	if s.claim != nil {
		return r.checkClaim(ctx, s)
	}
	input := claimInput{DataVolume: s.dv, Class: s.class}
	if s.plan.kind == kindClone {
		if err := r.cloneSource(ctx, s, &input); err != nil {
			return err
		}
	}
	claim, err := buildClaim(input)
	if err != nil {
		s.failed = &obstacle{reasonInvalidClone, err.Error()}
		if input.Source == nil {
			s.failed.reason = reasonUnsupported
		}
		return steps.ErrDone
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
	return nil
}

// checkClaim ends the pass on a claim that is not the DataVolume's, unless it may take it over.
func (r *Reconciler) checkClaim(ctx context.Context, s *scope) error {
	if s.claim.DeletionTimestamp != nil {
		s.waiting = &obstacle{reasonPending, fmt.Sprintf("PVC %s is being deleted", s.claim.Name)}
		return steps.ErrDone
	}
	if s.ours() {
		return nil
	}
	allowed := s.claim.Annotations[AnnotationAdopt] == valueTrue || s.dv.Annotations[AnnotationAdopt] == valueTrue
	if metav1.GetControllerOf(s.claim) != nil || !allowed {
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

// cloneSource finds the claim to clone and waits until it is filled.
func (r *Reconciler) cloneSource(ctx context.Context, s *scope, input *claimInput) error {
	from := s.plan.source
	if ref := s.plan.sourceRef; ref != nil {
		found, labels, err := r.followDataSource(ctx, s)
		if err != nil {
			return err
		}
		from, input.Labels = found, labels
	}
	namespace := from.Namespace
	if namespace == "" {
		namespace = s.dv.Namespace
	}
	claim, err := get(ctx, r.Client, types.NamespacedName{Namespace: namespace, Name: from.Name}, &corev1.PersistentVolumeClaim{})
	if err != nil {
		return err
	}
	if claim == nil {
		s.waiting = &obstacle{reasonSourceMissing, fmt.Sprintf("Source PVC %s/%s not found; it is cloned once it exists", namespace, from.Name)}
		return steps.ErrDone
	}
	if by := metav1.GetControllerOf(claim); by != nil && by.Kind == kindDataVolume && claim.Annotations[AnnotationPodPhase] != phaseSucceeded {
		s.waiting = &obstacle{reasonSourceUnready, fmt.Sprintf("Source PVC %s/%s is not filled yet; it is cloned once DataVolume %s has succeeded", namespace, from.Name, by.Name)}
		return steps.ErrDone
	}
	labels := defaults(claim.Labels)
	setAll(&labels, input.Labels) // a DataSource knows better than its claim
	input.Source, input.Labels = claim, labels
	return nil
}

// followDataSource returns the claim that the DataVolume's DataSource names, over one further DataSource at the most.
func (r *Reconciler) followDataSource(ctx context.Context, s *scope) (*cdiv1.DataVolumeSourcePVC, map[string]string, error) {
	ref := s.plan.sourceRef
	key := types.NamespacedName{Namespace: s.dv.Namespace, Name: ref.Name}
	if ref.Namespace != nil && *ref.Namespace != "" {
		key.Namespace = *ref.Namespace
	}
	labels := map[string]string{}
	for range 2 {
		found, err := get(ctx, r.Client, key, &cdiv1.DataSource{})
		if err != nil {
			return nil, nil, err
		}
		if found == nil {
			s.waiting = &obstacle{reasonSourceMissing, fmt.Sprintf("DataSource %s not found; it is followed once it exists", key)}
			return nil, nil, steps.ErrDone
		}
		own := defaults(found.Labels)
		setAll(&own, labels)
		labels = own
		switch source := found.Spec.Source; {
		case source.PVC != nil:
			from := source.PVC.DeepCopy()
			if from.Namespace == "" {
				from.Namespace = found.Namespace
			}
			return from, labels, nil
		case source.DataSource != nil:
			key = types.NamespacedName{Namespace: source.DataSource.Namespace, Name: source.DataSource.Name}
		default:
			s.waiting = &obstacle{reasonUnsupported, fmt.Sprintf("DataSource %s names no PVC; other sources are not supported yet", key)}
			return nil, nil, steps.ErrDone
		}
	}
	s.failed = &obstacle{reasonUnsupported, fmt.Sprintf("DataSource %s points to a DataSource that points to another; point it to a PVC", ref.Name)}
	return nil, nil, steps.ErrDone
}
