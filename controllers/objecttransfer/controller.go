package objecttransfer

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/tools/events"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/slipway-vm/slipway/internal/names"
	"github.com/slipway-vm/slipway/internal/steps"
)

// Reconciler brings ObjectTransfers to their end.
type Reconciler struct {
	client.Client // its cache finds the transfers that something concerns

	live   client.Reader // past the cache: all that is decided by
	events events.EventRecorder
	now    func() time.Time
}

// SetupWithManager adds the controller to mgr.
func SetupWithManager(mgr ctrl.Manager) error {
	r := &Reconciler{Client: mgr.GetClient(), live: mgr.GetAPIReader(), events: mgr.GetEventRecorder("transfer-controller"), now: time.Now}
	err := ctrl.NewControllerManagedBy(mgr).
		Named(controllerName).
		For(&cdiv1.ObjectTransfer{}).
		Watches(&cdiv1.DataVolume{}, handler.EnqueueRequestsFromMapFunc(r.moving)).
		Watches(&corev1.PersistentVolumeClaim{}, handler.EnqueueRequestsFromMapFunc(r.moving)).
		Watches(&corev1.PersistentVolume{}, handler.EnqueueRequestsFromMapFunc(travelling)).
		Watches(&corev1.Pod{}, handler.EnqueueRequestsFromMapFunc(r.using)).
		Watches(&corev1.Namespace{}, handler.EnqueueRequestsFromMapFunc(r.into)).
		Complete(r)
	if err != nil {
		return fmt.Errorf("setting up the ObjectTransfer controller: %w", err)
	}
	return nil
}

// moving requests the transfers of which a DataVolume or claim is source or target.
func (r *Reconciler) moving(ctx context.Context, object client.Object) []reconcile.Request {
	key := client.ObjectKeyFromObject(object)
	return r.those(ctx, func(ot *cdiv1.ObjectTransfer) bool { return sourceOf(ot) == key || targetOf(ot) == key })
}

// travelling requests the transfer for which a volume is on its way.
func travelling(_ context.Context, volume client.Object) []reconcile.Request {
	name := volume.GetAnnotations()[annotationFor]
	if name == "" {
		return nil
	}
	return []reconcile.Request{{NamespacedName: client.ObjectKey{Name: name}}}
}

// using requests the transfers that a pod which has ended, or is gone, may have stood in the way of.
func (r *Reconciler) using(ctx context.Context, object client.Object) []reconcile.Request {
	pod, ok := object.(*corev1.Pod)
	if !ok || pod.DeletionTimestamp == nil && pod.Status.Phase != corev1.PodSucceeded && pod.Status.Phase != corev1.PodFailed {
		return nil
	}
	return r.those(ctx, func(ot *cdiv1.ObjectTransfer) bool {
		for i := range pod.Spec.Volumes {
			if claim := pod.Spec.Volumes[i].PersistentVolumeClaim; claim != nil && claim.ClaimName == ot.Spec.Source.Name {
				return ot.Spec.Source.Namespace == pod.Namespace
			}
		}
		return false
	})
}

// into requests the transfers into a namespace, which may have waited for it.
func (r *Reconciler) into(ctx context.Context, namespace client.Object) []reconcile.Request {
	return r.those(ctx, func(ot *cdiv1.ObjectTransfer) bool { return targetOf(ot).Namespace == namespace.GetName() })
}

// those requests the chosen transfers of those that have not ended.
func (r *Reconciler) those(ctx context.Context, chosen func(*cdiv1.ObjectTransfer) bool) []reconcile.Request {
	var all cdiv1.ObjectTransferList
	if err := r.List(ctx, &all); err != nil {
		log.FromContext(ctx).Error(err, "Listing ObjectTransfers failed")
		return nil
	}
	var requests []reconcile.Request
	for n := range all.Items {
		if ot := &all.Items[n]; !ended(ot) && chosen(ot) {
			requests = append(requests, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(ot)})
		}
	}
	return requests
}

func ended(ot *cdiv1.ObjectTransfer) bool {
	return ot.Status.Phase == cdiv1.ObjectTransferComplete || ot.Status.Phase == cdiv1.ObjectTransferError
}

// todo are the steps of a pass.
func (r *Reconciler) todo(s *scope) []func(context.Context, *scope) error {
	deleted := s.ot.DeletionTimestamp != nil
	switch {
	case s.ot.Status.Phase == cdiv1.ObjectTransferComplete:
		return r.only(r.release)
	case s.ot.Status.Phase == cdiv1.ObjectTransferError && deleted:
		return r.only(r.findVolume, r.leaveVolume, r.unlock, r.release)
	case s.ot.Status.Phase == cdiv1.ObjectTransferError:
		return nil
	case s.ot.Status.Phase == cdiv1.ObjectTransferRunning:
		return r.running()
	case deleted:
		return r.only(r.unlock, r.release)
	case s.ot.Status.Phase == cdiv1.ObjectTransferEmpty:
		return r.only(r.hold)
	}
	return r.pending()
}

func (r *Reconciler) only(list ...func(context.Context, *scope) error) []func(context.Context, *scope) error {
	return list
}

// pending are the steps of a transfer that has not begun. None but the last two writes.
func (r *Reconciler) pending() []func(context.Context, *scope) error {
	return r.only(r.checkSpec, r.checkTarget, r.findSource, r.checkSource, r.checkClaim, r.checkVolume, r.checkClones, r.checkUse, r.tryTarget,
		r.lock, r.record)
}

// running are the steps of one that has begun.
func (r *Reconciler) running() []func(context.Context, *scope) error {
	return r.only(r.findVolume, r.findTarget, r.turnBack, r.keepVolume, r.removeSource, r.makeClaim, r.giveVolume, r.announce, r.awaitBinding,
		r.makeDataVolume, r.awaitDataVolume, r.settle, r.finish)
}

// Reconcile makes one pass over the ObjectTransfer that request names.
func (r *Reconciler) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	ot, err := get(ctx, r.live, request.NamespacedName, &cdiv1.ObjectTransfer{})
	if err != nil || ot == nil {
		return ctrl.Result{}, err
	}
	s, err := newScope(ot)
	if err == nil {
		err = steps.Run(ctx, s, r.todo(s))
	}
	if found, ok := errors.AsType[*obstacle](err); ok {
		s.obstacle, err = found, nil
	}
	if !apierrors.IsConflict(err) {
		s.failure = err
	}
	if !s.released && !apierrors.IsConflict(err) {
		err = errors.Join(err, r.writeStatus(ctx, s))
	}
	if apierrors.IsConflict(err) {
		log.FromContext(ctx).V(1).Info("Looking again, something has changed meanwhile", "cause", err.Error())
		return ctrl.Result{Requeue: true}, nil //nolint:staticcheck // the event that tells of it may have passed already
	}
	if s.obstacle != nil && s.obstacle.poll {
		return ctrl.Result{RequeueAfter: retry}, err
	}
	return ctrl.Result{}, err
}

// hold lets a new transfer stay until it has ended, and begins it.
func (r *Reconciler) hold(ctx context.Context, s *scope) error {
	return r.finalizers(ctx, s, controllerutil.AddFinalizer)
}

// release lets a transfer go of which nothing is on its way.
func (r *Reconciler) release(ctx context.Context, s *scope) error {
	s.released = true
	return r.finalizers(ctx, s, controllerutil.RemoveFinalizer)
}

// finalizers adds or removes ours, of the object as it was read.
func (r *Reconciler) finalizers(ctx context.Context, s *scope, change func(client.Object, string) bool) error {
	changed := s.ot.DeepCopy()
	if !change(changed, Finalizer) {
		return nil
	}
	patch := client.MergeFromWithOptions(s.ot, client.MergeFromWithOptimisticLock{})
	if err := r.Patch(ctx, changed, patch, client.FieldOwner(names.ManagerData)); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("changing the finalizers of ObjectTransfer %s: %w", s.ot.Name, err)
	}
	s.ot = changed
	return nil
}
