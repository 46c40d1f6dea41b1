package virtualmachineclone

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	clonev1 "kubevirt.io/api/clone/v1beta1"
	virtv1 "kubevirt.io/api/core/v1"
	snapshotv1 "kubevirt.io/api/snapshot/v1beta1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/slipway-vm/slipway/controllers/virtualmachinerestore"
	"github.com/slipway-vm/slipway/internal/steps"
)

// Reconciler clones VMs.
type Reconciler struct {
	client.Client // its cache has the clones

	live   client.Reader // past the caches: all that is decided by
	events events.EventRecorder
	now    func() time.Time
}

// SetupWithManager adds the controller to mgr, whose cluster has VolumeSnapshots; VMs and claims are watched in parent's cache.
func SetupWithManager(mgr, parent ctrl.Manager) error {
	r := &Reconciler{
		Client: mgr.GetClient(), live: mgr.GetAPIReader(),
		events: mgr.GetEventRecorder("clone-controller"), now: time.Now,
	}
	err := ctrl.NewControllerManagedBy(mgr).Named("virtualmachineclone").
		For(&clonev1.VirtualMachineClone{}).
		Watches(&snapshotv1.VirtualMachineSnapshot{}, handler.EnqueueRequestsFromMapFunc(r.ofSnapshot)).
		Watches(&snapshotv1.VirtualMachineRestore{}, handler.EnqueueRequestsFromMapFunc(r.ofRestore)).
		WatchesRawSource(source.Kind(parent.GetCache(), &virtv1.VirtualMachine{},
			handler.TypedEnqueueRequestsFromMapFunc(func(ctx context.Context, vm *virtv1.VirtualMachine) []reconcile.Request { return r.ofVM(ctx, vm) }))).
		WatchesRawSource(source.Kind(parent.GetCache(), &corev1.PersistentVolumeClaim{},
			handler.TypedEnqueueRequestsFromMapFunc(func(ctx context.Context, claim *corev1.PersistentVolumeClaim) []reconcile.Request {
				return r.ofClaim(ctx, claim)
			}))).
		Complete(r)
	if err != nil {
		return fmt.Errorf("setting up the VirtualMachineClone controller: %w", err)
	}
	return nil
}

// ofSnapshot requests the clones that work with a snapshot.
func (r *Reconciler) ofSnapshot(ctx context.Context, snapshot client.Object) []reconcile.Request {
	return r.those(ctx, snapshot.GetNamespace(), func(c *clonev1.VirtualMachineClone) bool {
		return snapshotName(c) == snapshot.GetName() && !ended(c)
	})
}

// ofRestore requests the clone whose restore it is.
func (r *Reconciler) ofRestore(_ context.Context, restore client.Object) []reconcile.Request {
	owner := metav1.GetControllerOf(restore)
	if owner == nil || owner.Kind != clonev1.VirtualMachineCloneKind.Kind {
		return nil
	}
	return []reconcile.Request{{NamespacedName: client.ObjectKey{Namespace: restore.GetNamespace(), Name: owner.Name}}}
}

// ofVM requests the clones that wait for a VM as their source, or whose target has its name.
func (r *Reconciler) ofVM(ctx context.Context, vm client.Object) []reconcile.Request {
	return r.those(ctx, vm.GetNamespace(), func(c *clonev1.VirtualMachineClone) bool {
		return targetName(c) == vm.GetName() || ofMachine(c) && c.Spec.Source.Name == vm.GetName() && c.Status.SnapshotName == nil && !ended(c)
	})
}

// ofClaim requests the clone for which a claim was made.
func (r *Reconciler) ofClaim(ctx context.Context, claim client.Object) []reconcile.Request {
	by := claim.GetAnnotations()[virtualmachinerestore.AnnotationName]
	if by == "" {
		return nil
	}
	return r.those(ctx, claim.GetNamespace(), func(c *clonev1.VirtualMachineClone) bool { return restoreName(c.UID) == by })
}

func (r *Reconciler) those(ctx context.Context, namespace string, chosen func(*clonev1.VirtualMachineClone) bool) []reconcile.Request {
	all := &clonev1.VirtualMachineCloneList{}
	if err := r.List(ctx, all, client.InNamespace(namespace)); err != nil {
		log.FromContext(ctx).Error(err, "Listing VirtualMachineClones failed")
		return nil
	}
	var requests []reconcile.Request
	for i := range all.Items {
		if all.Items[i].Spec.Source != nil && chosen(&all.Items[i]) {
			requests = append(requests, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&all.Items[i])})
		}
	}
	return requests
}

// todo are the steps of a pass. Whatever can be known before the guest is made to stand still is asked before that. What
// the new VM was made with stays until its disks do not need it any more, whatever has become of the VM; of a clone that has failed it goes at once. The API
// server's garbage collector clears up after a clone that is deleted.
func (r *Reconciler) todo(s *scope) []func(context.Context, *scope) error {
	switch {
	case s.clone.DeletionTimestamp != nil:
		return nil
	case s.clone.Status.Phase == clonev1.Failed:
		return []func(context.Context, *scope) error{r.clear}
	case s.clone.Status.Phase == clonev1.Succeeded:
		return []func(context.Context, *scope) error{r.awaitClaims, r.clear, r.goWithTarget}
	}
	return []func(context.Context, *scope) error{
		r.checkMade, r.checkTarget, r.findSource, r.takeSnapshot, r.awaitSnapshot, r.startRestore, r.awaitRestore, r.finish,
	}
}

// Reconcile brings one clone forward.
func (r *Reconciler) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	s, err := r.read(ctx, request.NamespacedName)
	if err != nil || s == nil {
		return ctrl.Result{}, err
	}
	err = steps.Run(ctx, s, r.todo(s))
	if found, ok := errors.AsType[*obstacle](err); ok {
		s.obstacle, err = found, nil
		r.tell(s, found)
	}
	if s.gone || s.clone.DeletionTimestamp != nil {
		return ctrl.Result{}, err
	}
	err = errors.Join(err, r.writeStatus(ctx, s))
	if apierrors.IsConflict(err) {
		log.FromContext(ctx).V(1).Info("Waiting for the newer object", "reason", err.Error())
		return ctrl.Result{Requeue: true}, nil //nolint:staticcheck // the event that brings the newer object may have passed already
	}
	return s.next(), err
}

// tell has an event of an obstacle that was not told of before.
func (r *Reconciler) tell(s *scope, found *obstacle) {
	for _, c := range s.clone.Status.Conditions {
		if c.Type == clonev1.ConditionReady && c.Reason == found.message {
			return
		}
	}
	r.events.Eventf(s.clone, nil, corev1.EventTypeWarning, found.reason, "Reconcile", "%s", found.message)
}

func (r *Reconciler) normal(s *scope, reason, format string, args ...any) {
	r.events.Eventf(s.clone, nil, corev1.EventTypeNormal, reason, "Reconcile", format, args...)
}
