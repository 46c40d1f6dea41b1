package populator

import (
	"context"
	"fmt"
	"maps"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-vm/slipway/controllers/datavolume"
	"github.com/slipway-vm/slipway/internal/population"
	"github.com/slipway-vm/slipway/internal/steps"
	"github.com/slipway-vm/slipway/internal/upload"
)

// passOver ends the pass on a target of an upload whose disk was there before it was looked at: CDI, or a DataVolume
// that is gone, has seen to it.
func (r *Reconciler) passOver(_ context.Context, s *scope) error {
	if s.chosen || !population.Uploaded(s.claim) {
		return nil
	}
	s.quiet = true
	return steps.ErrDone
}

// target reads what is sent to the target of an upload from its annotations. It waits while a pod uses the claim, below
// which the image would be written. Of one that has no volume yet that may be the pod which gets it bound: there the
// DataVolume looks, before it has a server made.
func (r *Reconciler) target(ctx context.Context, s *scope, input *primeInput) error {
	var err error
	if input.Upload, err = sourceOf(s.claim); err != nil {
		s.waiting = &obstacle{reasonUnsupported, err.Error()}
		return steps.ErrDone
	}
	if !s.bound() {
		return nil
	}
	used, err := datavolume.Consumer(ctx, r.live, s.claim, "")
	if err != nil || used == "" {
		return err
	}
	s.waiting, s.result.RequeueAfter = &obstacle{datavolume.ReasonInUse, used}, refusedRetry
	return steps.ErrDone
}

// sourceOf is the VolumeUploadSource that a claim's annotations stand for. Its error names the one that makes no sense.
func sourceOf(claim *corev1.PersistentVolumeClaim) (*cdiv1.VolumeUploadSource, error) {
	source := &cdiv1.VolumeUploadSource{}
	source.Spec.ContentType = cdiv1.DataVolumeContentType(claim.Annotations[datavolume.AnnotationContentType])
	switch source.Spec.ContentType {
	case "", cdiv1.DataVolumeKubeVirt, cdiv1.DataVolumeArchive:
	default:
		return nil, fmt.Errorf("annotation %s is %q; write %s or %s", datavolume.AnnotationContentType, source.Spec.ContentType, cdiv1.DataVolumeKubeVirt, cdiv1.DataVolumeArchive)
	}
	if asked := claim.Annotations[annotationPreallocation]; asked != "" {
		preallocate, err := strconv.ParseBool(asked)
		if err != nil {
			return nil, fmt.Errorf("annotation %s is %q; write true or false", annotationPreallocation, asked)
		}
		source.Spec.Preallocation = &preallocate
	}
	return source, nil
}

// withdraw takes away what would fill a claim that was the target of an upload and is not any more: its
// annotation went, or a DataVolume took it over. What is noted of that on a claim that is not whole goes with it: who it
// is filled by last, when its server writes no more, for then others may use the claim.
func (r *Reconciler) withdraw(ctx context.Context, claim *corev1.PersistentVolumeClaim) (ctrl.Result, error) {
	name := population.PrimeName(claim)
	if claim.Annotations[population.AnnotationFilledBy] != name {
		return ctrl.Result{}, nil
	}
	s := &scope{claim: claim, kind: population.Target}
	var err error // past the cache: one that was just made would be forgotten
	if s.prime, err = get(ctx, r.live, types.NamespacedName{Namespace: claim.Namespace, Name: name}, &cdiv1.DataVolume{}); err != nil {
		return ctrl.Result{}, err
	}
	if s.prime != nil && metav1.IsControlledBy(s.prime, claim) {
		return ctrl.Result{}, r.removePrime(ctx, s) // its end brings the next pass
	}
	if !population.Withdrawn(claim) {
		return ctrl.Result{}, nil
	}
	busy, err := r.serverWorks(ctx, s)
	if err != nil {
		return ctrl.Result{}, err
	}
	err = r.removeNotes(ctx, claim, busy)
	if apierrors.IsConflict(err) || err == nil && busy {
		return ctrl.Result{RequeueAfter: staleRetry}, nil
	}
	return ctrl.Result{}, err
}

// serverWorks reports whether the upload server of a claim whose DataVolume is gone may still write to it.
func (r *Reconciler) serverWorks(ctx context.Context, s *scope) (bool, error) {
	pod, err := r.worker(ctx, r.live, s)
	if err != nil || pod == nil || pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed {
		return false, err
	}
	by := metav1.GetControllerOf(pod)
	return by != nil && by.Kind == kindDataVolume && by.Name == population.PrimeName(s.claim), nil
}

// removeNotes takes away what is noted on a claim that is no target any more, and, unless its server is busy, who fills it.
// It tells of an image that had begun to come.
func (r *Reconciler) removeNotes(ctx context.Context, claim *corev1.PersistentVolumeClaim, busy bool) error {
	before, progress := claim.DeepCopy(), claim.Annotations[population.AnnotationProgress]
	claim.Annotations = withoutRecord(claim.Annotations)
	if !busy {
		delete(claim.Annotations, population.AnnotationUse)
		delete(claim.Annotations, population.AnnotationFilledBy)
		r.told.forget(client.ObjectKeyFromObject(claim))
	}
	if maps.Equal(before.Annotations, claim.Annotations) {
		return nil
	}
	err := r.Patch(ctx, claim, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}), client.FieldOwner(manager))
	if apierrors.IsNotFound(err) {
		return nil // gone since it was read
	}
	if err != nil {
		return fmt.Errorf("noting that claim %s is no target of an upload: %w", claim.Name, err)
	}
	if progress != "" && progress != progressUnknown {
		r.events.Eventf(claim, nil, corev1.EventTypeWarning, reasonWithdrawn, eventAction,
			"annotation %s went while an image came: %s has no whole disk. Send another, or delete it", upload.AnnotationTarget, claim.Name)
	}
	return nil
}
