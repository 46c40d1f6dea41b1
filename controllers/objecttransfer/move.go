package objecttransfer

import (
	"context"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/slipway-vm/slipway/controllers/handover"
	"github.com/slipway-vm/slipway/internal/names"
	"github.com/slipway-vm/slipway/internal/steps"
)

// findVolume reads the volume.
func (r *Reconciler) findVolume(ctx context.Context, s *scope) error {
	if s.rec == nil {
		return nil // of a transfer that has failed before it began
	}
	var err error
	if s.volume, err = get(ctx, r.live, types.NamespacedName{Name: s.rec.volume}, &corev1.PersistentVolume{}); err != nil {
		return err
	}
	if s.volume == nil && !ended(s.ot) {
		return fail(sayNoVolume, "PersistentVolume %s, which is moved, is gone", s.rec.volume)
	}
	return nil
}

// findTarget looks where the volume goes, and whether there is a claim with it already.
func (r *Reconciler) findTarget(ctx context.Context, s *scope) error {
	return r.head(ctx, s, targetOf(s.ot))
}

// head makes goal where the volume goes.
func (r *Reconciler) head(ctx context.Context, s *scope, goal types.NamespacedName) error {
	s.goal, s.made = goal, nil
	claim, err := get(ctx, r.live, goal, &corev1.PersistentVolumeClaim{})
	if err == nil && claim != nil && claim.Spec.VolumeName == s.rec.volume && claim.UID != s.rec.claim.UID {
		s.made = claim
	}
	return err
}

// turnBack lets a transfer that is deleted before its target is there end where it began. A source that
// nothing has happened to is only given free.
func (r *Reconciler) turnBack(ctx context.Context, s *scope) error {
	if s.ot.DeletionTimestamp == nil || s.made != nil {
		return nil
	}
	intact, err := r.intact(ctx, s)
	if err != nil {
		return err
	}
	if !intact {
		return r.head(ctx, s, sourceOf(s.ot))
	}
	if s.marked() {
		if err := handover.Settle(ctx, r.Client, s.volume, s.way()); err != nil {
			return err
		}
	}
	for _, end := range r.only(r.unlock, r.release) {
		if err := end(ctx, s); err != nil {
			return err
		}
	}
	return steps.ErrDone
}

// intact reports whether the source is there still, and stays.
func (r *Reconciler) intact(ctx context.Context, s *scope) (bool, error) {
	claim, err := get(ctx, r.live, sourceOf(s.ot), &corev1.PersistentVolumeClaim{})
	if err != nil || claim == nil || claim.UID != s.rec.claim.UID || claim.DeletionTimestamp != nil {
		return false, err
	}
	if !s.ofDataVolume() {
		return true, nil
	}
	dv, err := get(ctx, r.live, sourceOf(s.ot), &cdiv1.DataVolume{})
	return err == nil && dv != nil && dv.UID == s.rec.dv.UID && dv.DeletionTimestamp == nil, err
}

// keepVolume marks the volume and keeps it, before its claim goes.
func (r *Reconciler) keepVolume(ctx context.Context, s *scope) error {
	switch ref := s.volume.Spec.ClaimRef; {
	case s.made != nil || s.marked():
		return nil
	case handover.Marked(s.volume):
		return poll(sayVolume, "PersistentVolume %s is being handed over for a clone or another transfer", s.volume.Name)
	case s.volume.DeletionTimestamp != nil:
		return fail(sayNoVolume, "PersistentVolume %s is being deleted", s.volume.Name)
	case ref == nil || ref.UID != s.rec.claim.UID:
		return fail(sayWrongClaim, "PersistentVolume %s was given to another claim than %s", s.volume.Name, sourceOf(s.ot))
	}
	return handover.Keep(ctx, r.Client, s.volume, s.rec.claim, s.way())
}

// removeSource deletes the source, whose volume is kept, and waits until it is gone: the DataVolume first, which would
// make its claim anew. Pods that have come meanwhile keep the claim until they end.
func (r *Reconciler) removeSource(ctx context.Context, s *scope) error {
	if s.made != nil {
		return nil
	}
	if !s.marked() || s.volume.Spec.PersistentVolumeReclaimPolicy != corev1.PersistentVolumeReclaimRetain {
		return fmt.Errorf("volume %s of claim %s would not be kept", s.volume.Name, sourceOf(s.ot))
	}
	if s.ofDataVolume() {
		dv, err := get(ctx, r.live, sourceOf(s.ot), &cdiv1.DataVolume{})
		if err != nil {
			return err
		}
		if dv != nil && dv.UID == s.rec.dv.UID {
			return r.remove(ctx, dv, "DataVolume %s is being deleted")
		}
	}
	claim, err := get(ctx, r.live, sourceOf(s.ot), &corev1.PersistentVolumeClaim{})
	if err != nil || claim == nil || claim.UID != s.rec.claim.UID {
		return err
	}
	says := "PersistentVolumeClaim %s is being deleted"
	users, err := r.users(ctx, claim)
	if err != nil {
		return err
	}
	if len(users) > 0 {
		says += "; these pods keep it: " + strings.Join(users, ", ")
	}
	return r.remove(ctx, claim, says)
}

// remove deletes an object and ends the pass: its end is watched.
func (r *Reconciler) remove(ctx context.Context, object client.Object, says string) error {
	if object.GetDeletionTimestamp() == nil {
		log.FromContext(ctx).Info("Deleting what is moved; its volume is kept", "object", client.ObjectKeyFromObject(object).String())
		err := r.Delete(ctx, object, client.Preconditions{UID: new(object.GetUID())}, client.PropagationPolicy(metav1.DeletePropagationBackground))
		if client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("deleting %T %s: %w", object, client.ObjectKeyFromObject(object), err)
		}
	}
	return wait(sayGoing, says, client.ObjectKeyFromObject(object))
}

// makeClaim makes the claim that gets the volume. It is made before the volume is reserved for its name, so that no
// other claim of that name can have it, and write to it.
func (r *Reconciler) makeClaim(ctx context.Context, s *scope) error {
	if s.made != nil {
		return nil
	}
	claim := newClaim(s.rec, s.goal, s.ot.Name)
	err := r.Create(ctx, claim, client.FieldOwner(names.ManagerData))
	switch {
	case apierrors.IsAlreadyExists(err):
		return poll(sayTargetThere, "PersistentVolumeClaim %s exists, and has another volume; PersistentVolume %s is kept for one of that name until it is gone", s.goal, s.volume.Name)
	case refused(err):
		return poll(sayRefused, "PersistentVolume %s is kept until it can be made: %v", s.volume.Name, err)
	case err != nil:
		return fmt.Errorf("creating claim %s: %w", s.goal, err)
	}
	s.made = claim
	return nil
}

// giveVolume gives the claim the volume, which has lost the one that it was of.
func (r *Reconciler) giveVolume(ctx context.Context, s *scope) error {
	ref := s.volume.Spec.ClaimRef
	if ref != nil && ref.UID != s.made.UID {
		holder, err := get(ctx, r.live, types.NamespacedName{Namespace: ref.Namespace, Name: ref.Name}, &corev1.PersistentVolumeClaim{})
		if err != nil {
			return err
		}
		foreign := ref.Namespace != s.goal.Namespace || ref.Name != s.goal.Name
		if holder != nil && holder.UID == ref.UID || ref.UID == "" && foreign {
			return fail(sayWrongClaim, "PersistentVolume %s was given to claim %s/%s", s.volume.Name, ref.Namespace, ref.Name)
		}
	}
	return handover.Give(ctx, r.Client, s.volume, s.made, names.ManagerData)
}

// announce takes the mark off the claim once Kubernetes has seen whose the volume is: it found that to be another's when the
// claim was made, and looks at the claim again when that changes.
func (r *Reconciler) announce(ctx context.Context, s *scope) error {
	seen := s.volume.Status.Phase == corev1.VolumeBound || s.made.Status.Phase == corev1.ClaimBound
	if !seen && s.made.Annotations[AnnotationName] != "" {
		return wait(sayBinding, "PersistentVolume %s was given to PersistentVolumeClaim %s", s.volume.Name, s.goal)
	}
	return r.mark(ctx, s.made, "")
}

// awaitBinding waits until the claim has the volume.
func (r *Reconciler) awaitBinding(_ context.Context, s *scope) error {
	if s.made.Status.Phase != corev1.ClaimBound {
		return wait(sayBinding, "PersistentVolumeClaim %s gets PersistentVolume %s", s.goal, s.volume.Name)
	}
	return nil
}
