package virtualmachinetemplaterequest

import (
	"context"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	vmtemplatev1beta1 "github.com/slipway-vm/slipway/internal/api/virtualmachinetemplate/v1beta1"
)

// removeTemplate takes the template back.
func (r *Reconciler) removeTemplate(ctx context.Context, s *scope) error {
	if s.template == nil {
		return nil
	}
	return r.remove(ctx, s.template)
}

// removeDisks takes the copies back.
func (r *Reconciler) removeDisks(ctx context.Context, s *scope) error {
	for _, dv := range s.disks {
		if err := r.remove(ctx, dv); err != nil {
			return err
		}
	}
	return nil
}

// removeSnapshot removes the snapshot, which complete copies do not need.
func (r *Reconciler) removeSnapshot(ctx context.Context, s *scope) error {
	if s.snapshot == nil {
		return nil
	}
	return r.remove(ctx, s.snapshot)
}

func (r *Reconciler) remove(ctx context.Context, object client.Object) error {
	if object.GetDeletionTimestamp() != nil {
		return nil
	}
	uid := object.GetUID()
	if err := r.Delete(ctx, object, client.Preconditions{UID: &uid}); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("deleting %T %s: %w", object, client.ObjectKeyFromObject(object), err)
	}
	return nil
}

// release lets the request go: nothing has to be removed with it any more.
func (r *Reconciler) release(ctx context.Context, s *scope) error {
	err := r.change(ctx, s.request, func() { controllerutil.RemoveFinalizer(s.request, vmtemplatev1beta1.FinalizerRequest) })
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// expire deletes the request when it has been ready for as long as it says.
func (r *Reconciler) expire(ctx context.Context, s *scope) error {
	ttl := s.request.Spec.TTLSecondsAfterFinished
	if ttl == nil || s.request.DeletionTimestamp != nil {
		return nil
	}
	since := meta.FindStatusCondition(s.request.Status.Conditions, vmtemplatev1beta1.ConditionReady).LastTransitionTime
	if left := since.Add(time.Duration(*ttl) * time.Second).Sub(s.now); left > 0 {
		s.result.RequeueAfter = left
		return nil
	}
	s.gone = true
	return r.remove(ctx, s.request)
}
