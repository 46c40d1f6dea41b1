package datavolume

import (
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/slipway-vm/slipway/internal/keep"
	"github.com/slipway-vm/slipway/internal/names"
)

const (
	// AnnotationCollect on a DataVolume is true when it goes some time after it has succeeded, and its claim stays.
	AnnotationCollect = names.AnnotationCollect
	// annotationCollected on a claim says that its DataVolume has gone so.
	annotationCollected = "cdi.kubevirt.io/garbageCollected"
	// labelImportCron is on DataVolumes that a DataImportCron makes and looks after.
	labelImportCron = "cdi.kubevirt.io/dataImportCron"
)

// collectable reports whether the DataVolume goes, once it has succeeded, after how long. It stays where a controller looks
// after it: one that made it for a claim of another name, or a DataImportCron.
func (s *scope) collectable() (after time.Duration, is bool) {
	if s.ttl == nil || *s.ttl < 0 || s.dv.Annotations[AnnotationCollect] != valueTrue || s.dv.Status.Phase != cdiv1.Succeeded {
		return 0, false
	}
	if s.dv.Labels[labelImportCron] != "" || claimName(s.dv) != s.dv.Name {
		return 0, false
	}
	return time.Duration(*s.ttl) * time.Second, true
}

// collect deletes a DataVolume whose time after its success has passed, after its claim has become its owners'.
func (r *Reconciler) collect(ctx context.Context, s *scope) error {
	after, is := s.collectable()
	if !is || !s.done() {
		return nil
	}
	if ready := condition(s.dv.Status.Conditions, cdiv1.DataVolumeReady); ready != nil {
		after -= r.now().Sub(ready.LastTransitionTime.Time)
	}
	if after > 0 {
		s.result.RequeueAfter = after
		return nil
	}
	log.FromContext(ctx).Info("Leaving the claim to the DataVolume's owners", "owners", len(s.dv.OwnerReferences))
	left := s.claim.DeepCopy()
	left.OwnerReferences = inherited(s.claim.OwnerReferences, s.dv)
	delete(left.Annotations, AnnotationPopulatedFor)
	setAll(&left.Annotations, map[string]string{annotationCollected: valueTrue})
	if vm := s.dv.Labels[keep.LabelFor]; vm != "" {
		keep.For(left, types.UID(vm))
	}
	patch := client.MergeFromWithOptions(s.claim, client.MergeFromWithOptimisticLock{})
	if err := r.Patch(ctx, left, patch, client.FieldOwner(names.ManagerData)); err != nil {
		return fmt.Errorf("leaving claim %s to the owners of its DataVolume: %w", s.claim.Name, err)
	}
	s.claim = left
	return r.collectLeft(ctx, s)
}

// inherited are the owners of the claim of dv when that goes. None waits for the claim's end, for which its owner's leave would be needed.
func inherited(have []metav1.OwnerReference, dv *cdiv1.DataVolume) []metav1.OwnerReference {
	by := func(uid types.UID) func(metav1.OwnerReference) bool {
		return func(owner metav1.OwnerReference) bool { return owner.UID == uid }
	}
	owners := slices.DeleteFunc(slices.Clone(have), by(dv.UID))
	for _, owner := range dv.OwnerReferences {
		if owner.BlockOwnerDeletion = nil; !slices.ContainsFunc(owners, by(owner.UID)) {
			owners = append(owners, owner)
		}
	}
	return owners
}

// collectLeft deletes a DataVolume whose claim was left to its owners, also when a pass before was broken off there.
func (r *Reconciler) collectLeft(ctx context.Context, s *scope) error {
	if _, is := s.collectable(); !is || !s.leftClaim() {
		return nil
	}
	log.FromContext(ctx).Info("Deleting the DataVolume, its time after success has passed")
	err := r.Delete(ctx, s.dv, client.Preconditions{UID: &s.dv.UID}, client.PropagationPolicy(metav1.DeletePropagationBackground))
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("deleting DataVolume %s: %w", s.dv.Name, err)
	}
	return errStale // there is nothing of which a status could be written
}

// leftClaim reports whether the claim that the DataVolume has filled is its owners' now.
func (s *scope) leftClaim() bool {
	return s.claim != nil && s.claim.Name == s.dv.Status.ClaimName && s.claim.Status.Phase == corev1.ClaimBound &&
		s.claim.Annotations[annotationCollected] == valueTrue && !metav1.IsControlledBy(s.claim, s.dv)
}

// configured finds the DataVolumes for which it matters what holds for all: those without a claim, those that wait for an
// image, and those that are to go.
func (r *Reconciler) configured(ctx context.Context, _ client.Object) []reconcile.Request {
	var all cdiv1.DataVolumeList
	if err := r.List(ctx, &all); err != nil {
		log.FromContext(ctx).Error(err, "Listing DataVolumes failed")
		return nil
	}
	var requests []reconcile.Request
	for n := range all.Items {
		dv := &all.Items[n]
		goes := dv.Annotations[AnnotationCollect] == valueTrue && dv.Status.Phase == cdiv1.Succeeded
		ended := dv.Status.Phase == cdiv1.Succeeded || dv.Status.Phase == cdiv1.Failed
		if goes || dv.Status.ClaimName == "" && dv.Status.Phase != cdiv1.Failed || isUpload(dv) && !ended {
			requests = append(requests, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(dv)})
		}
	}
	return requests
}
