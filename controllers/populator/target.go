package populator

import (
	"context"
	"fmt"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"

	"github.com/slipway-vm/slipway/controllers/datavolume"
	"github.com/slipway-vm/slipway/internal/population"
	"github.com/slipway-vm/slipway/internal/steps"
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
// annotation went, or a DataVolume took it over.
func (r *Reconciler) withdraw(ctx context.Context, claim *corev1.PersistentVolumeClaim) error {
	name := population.PrimeName(claim)
	if claim.Annotations[population.AnnotationFilledBy] != name {
		return nil
	}
	prime, err := get(ctx, r.Client, types.NamespacedName{Namespace: claim.Namespace, Name: name}, &cdiv1.DataVolume{})
	if err != nil || prime == nil || !metav1.IsControlledBy(prime, claim) {
		return err
	}
	return r.removePrime(ctx, &scope{claim: claim, prime: prime})
}
