package objecttransfer

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/slipway-vm/slipway/controllers/handover"
	"github.com/slipway-vm/slipway/internal/names"
	"github.com/slipway-vm/slipway/internal/population"
)

// checkSpec refuses what admission refuses, in case it was not asked.
func (r *Reconciler) checkSpec(_ context.Context, s *scope) error {
	switch kind := s.ot.Spec.Source.Kind; {
	case kind != kindDataVolume && kind != kindClaim:
		return fail(sayError, "Unsupported kind %q; what is moved is a %s or a %s", kind, kindDataVolume, kindClaim)
	case sourceOf(s.ot) == targetOf(s.ot):
		return fail(sayError, "source and target are the same, %s", targetOf(s.ot))
	}
	return nil
}

// checkTarget waits until the target's namespace is there, and its name is free.
func (r *Reconciler) checkTarget(ctx context.Context, s *scope) error {
	target := targetOf(s.ot)
	namespace, err := get(ctx, r.live, types.NamespacedName{Name: target.Namespace}, &corev1.Namespace{})
	if err != nil {
		return err
	}
	if namespace == nil || namespace.DeletionTimestamp != nil {
		return wait(sayNamespace, "namespace %s is not there, or is being deleted", target.Namespace)
	}
	claim, err := get(ctx, r.live, target, &corev1.PersistentVolumeClaim{})
	if err != nil {
		return err
	}
	if claim != nil {
		return wait(sayTargetThere, "PersistentVolumeClaim %s exists; the transfer begins once it is gone", target)
	}
	if !s.ofDataVolume() {
		return nil
	}
	dv, err := get(ctx, r.live, target, &cdiv1.DataVolume{})
	if err == nil && dv != nil {
		return wait(sayTargetThere, "DataVolume %s exists; the transfer begins once it is gone", target)
	}
	return err
}

// findSource reads what is to be moved.
func (r *Reconciler) findSource(ctx context.Context, s *scope) error {
	var err error
	key := sourceOf(s.ot)
	if s.ofDataVolume() {
		if s.dv, err = get(ctx, r.live, key, &cdiv1.DataVolume{}); err != nil {
			return err
		}
		if s.dv == nil || s.dv.DeletionTimestamp != nil {
			return wait(sayNoSource, "DataVolume %s is not there, or is being deleted", key)
		}
	}
	if s.claim, err = get(ctx, r.live, key, &corev1.PersistentVolumeClaim{}); err != nil {
		return err
	}
	if s.claim == nil || s.claim.DeletionTimestamp != nil {
		return wait(sayNoSource, "PersistentVolumeClaim %s is not there, or is being deleted", key)
	}
	return nil
}

// source is the object that the transfer names.
func (s *scope) source() client.Object {
	if s.ofDataVolume() {
		return s.dv
	}
	return s.claim
}

// checkSource waits until the source has the annotations that it is to have and is nobody else's business.
func (r *Reconciler) checkSource(_ context.Context, s *scope) error {
	notes := s.source().GetAnnotations()
	for _, name := range slices.Sorted(maps.Keys(s.ot.Spec.Source.RequiredAnnotations)) {
		if value, is := notes[name]; !is || value != s.ot.Spec.Source.RequiredAnnotations[name] {
			return wait(sayAnnotations, "annotation %s is not %q", name, s.ot.Spec.Source.RequiredAnnotations[name])
		}
	}
	for _, object := range []client.Object{s.source(), s.claim} {
		if by := object.GetAnnotations()[AnnotationName]; by != "" && by != s.ot.Name {
			return poll(sayLocked, "%s", by)
		}
	}
	if by := metav1.GetControllerOf(s.source()); by != nil {
		return wait(sayControlled, "%s %s controls it and would make it anew; move that, or remove the owner reference", by.Kind, by.Name)
	}
	if s.ofDataVolume() && s.dv.Status.Phase != cdiv1.Succeeded {
		return wait(sayUnfilled, "DataVolume %s is in phase %s", s.dv.Name, s.dv.Status.Phase)
	}
	if s.ofDataVolume() && !metav1.IsControlledBy(s.claim, s.dv) {
		return wait(sayUnfilled, "PersistentVolumeClaim %s is not the DataVolume's", s.claim.Name)
	}
	return nil
}

// checkClaim waits until the claim has a whole disk, of which nothing is being made.
func (r *Reconciler) checkClaim(_ context.Context, s *scope) error {
	if s.claim.Spec.VolumeName == "" || s.claim.Status.Phase != corev1.ClaimBound {
		return wait(sayUnbound, "PersistentVolumeClaim %s is %s", s.claim.Name, s.claim.Status.Phase)
	}
	if population.Awaited(s.claim) {
		return wait(sayUnfilled, "PersistentVolumeClaim %s is yet to be filled by its %s", s.claim.Name, population.Source(s.claim))
	}
	for _, name := range []string{finalizerCloned, finalizerSnapshot} {
		if controllerutil.ContainsFinalizer(s.claim, name) {
			return wait(sayFinalizer+name, "a clone or a snapshot of it is being made")
		}
	}
	return nil
}

// checkVolume waits until the volume is the claim's alone.
func (r *Reconciler) checkVolume(ctx context.Context, s *scope) error {
	var err error
	if s.volume, err = get(ctx, r.live, types.NamespacedName{Name: s.claim.Spec.VolumeName}, &corev1.PersistentVolume{}); err != nil {
		return err
	}
	switch {
	case s.volume == nil || s.volume.DeletionTimestamp != nil:
		return poll(sayVolume, "PersistentVolume %s is not there, or is being deleted", s.claim.Spec.VolumeName)
	case s.volume.Spec.ClaimRef == nil || s.volume.Spec.ClaimRef.UID != s.claim.UID:
		return poll(sayVolume, "PersistentVolume %s is not bound to the claim", s.volume.Name)
	case handover.Marked(s.volume):
		return poll(sayVolume, "PersistentVolume %s is being handed over for a clone or another transfer", s.volume.Name)
	}
	return nil
}

// checkClones waits until no claim is being made from the claim. Not all that make one keep it by a finalizer, and none from the start.
func (r *Reconciler) checkClones(ctx context.Context, s *scope) error {
	var claims corev1.PersistentVolumeClaimList
	if err := r.live.List(ctx, &claims, client.InNamespace(s.claim.Namespace)); err != nil {
		return fmt.Errorf("looking for clones of claim %s: %w", s.claim.Name, err)
	}
	for n := range claims.Items {
		if clone := &claims.Items[n]; population.Awaits(clone, kindClaim, s.claim.Name) {
			return await(sayCloned, "PersistentVolumeClaim %s is yet to be made from it", clone.Name)
		}
	}
	return nil
}

// checkUse waits until no pod uses the claim.
func (r *Reconciler) checkUse(ctx context.Context, s *scope) error {
	users, err := r.users(ctx, s.claim)
	if err != nil || len(users) == 0 {
		return err
	}
	message := sayPods
	if s.ofDataVolume() {
		message = sayPodsOfDV
	}
	return await(message, "%s", strings.Join(users, ", ")) // pods of others than Slipway are not watched
}

// users names the pods that use claim and have not ended.
func (r *Reconciler) users(ctx context.Context, claim *corev1.PersistentVolumeClaim) ([]string, error) {
	var pods corev1.PodList
	if err := r.live.List(ctx, &pods, client.InNamespace(claim.Namespace)); err != nil {
		return nil, fmt.Errorf("looking for pods that use claim %s: %w", claim.Name, err)
	}
	var users []string
	for n := range pods.Items {
		pod := &pods.Items[n]
		if pod.Status.Phase != corev1.PodSucceeded && pod.Status.Phase != corev1.PodFailed && population.Uses(pod, claim) {
			users = append(users, pod.Name)
		}
	}
	return users, nil
}

// tryTarget asks the API server whether it would take the target: its quotas, its limits and its admission. Within
// a namespace that is not asked, for the source counts there until it is gone.
func (r *Reconciler) tryTarget(ctx context.Context, s *scope) error {
	goal := targetOf(s.ot)
	if goal.Namespace == s.ot.Spec.Source.Namespace {
		return nil
	}
	s.rec = newRecord(s.dv, s.claim, s.volume)
	wanted := []client.Object{newClaim(s.rec, goal, s.ot.Name)}
	if s.ofDataVolume() {
		wanted = append(wanted, newDataVolume(s.rec, goal, s.ot.Name))
	}
	for _, object := range wanted {
		if err := r.Create(ctx, object, client.DryRunAll, client.FieldOwner(names.ManagerData)); refused(err) {
			return poll(sayRefused, "%v", err)
		} else if err != nil {
			return fmt.Errorf("asking whether %T %s can be made: %w", object, goal, err)
		}
	}
	return nil
}

// refused reports whether the API server does not take an object, which a user may change.
func refused(err error) bool {
	return apierrors.IsForbidden(err) || apierrors.IsInvalid(err) || apierrors.IsBadRequest(err) || apierrors.IsNotFound(err) || apierrors.IsAlreadyExists(err)
}

// lock notes on the source, as it was read, that it is moved.
func (r *Reconciler) lock(ctx context.Context, s *scope) error {
	return r.mark(ctx, s.source(), s.ot.Name)
}

// record ends the pass, and with it the wait: what was found is written down with the phase.
func (r *Reconciler) record(_ context.Context, s *scope) error {
	s.rec, s.begun = newRecord(s.dv, s.claim, s.volume), true
	return nil
}

// unlock gives the source free again.
func (r *Reconciler) unlock(ctx context.Context, s *scope) error {
	source := client.Object(&corev1.PersistentVolumeClaim{})
	if s.ofDataVolume() {
		source = &cdiv1.DataVolume{}
	}
	source, err := get(ctx, r.live, sourceOf(s.ot), source)
	if err != nil || source == nil || source.GetAnnotations()[AnnotationName] != s.ot.Name {
		return err
	}
	if err := r.mark(ctx, source, ""); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("giving the source of ObjectTransfer %s free: %w", s.ot.Name, err)
	}
	return nil
}

// mark writes AnnotationName onto object, unless that has changed since it was read; "" removes it.
func (r *Reconciler) mark(ctx context.Context, object client.Object, by string) error {
	if object.GetAnnotations()[AnnotationName] == by {
		return nil
	}
	return r.note(ctx, object, func(notes map[string]string) {
		if delete(notes, AnnotationName); by != "" {
			notes[AnnotationName] = by
		}
	})
}

// note changes the annotations of object, unless that has changed since it was read.
func (r *Reconciler) note(ctx context.Context, object client.Object, change func(map[string]string)) error {
	before, ok := object.DeepCopyObject().(client.Object)
	if !ok {
		return fmt.Errorf("%T is no object", object)
	}
	notes := maps.Clone(object.GetAnnotations())
	if notes == nil {
		notes = map[string]string{}
	}
	change(notes)
	object.SetAnnotations(notes)
	err := r.Patch(ctx, object, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}), client.FieldOwner(names.ManagerData))
	if err != nil {
		return fmt.Errorf("writing annotations of %T %s: %w", object, client.ObjectKeyFromObject(object), err)
	}
	return nil
}
