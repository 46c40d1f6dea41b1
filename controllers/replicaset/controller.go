// Package replicaset keeps as many VirtualMachineInstances as a
// VirtualMachineInstanceReplicaSet asks for: it takes on those that its selector matches,
// makes what is missing from its template, deletes what is too much, and replaces those
// that ended.
package replicaset

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/tools/events"
	virtv1 "kubevirt.io/api/core/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	"github.com/slipway-vm/slipway/internal/steps"
)

// Reconciler brings replica sets to the number of instances that their specs ask for.
type Reconciler struct {
	client.Client
	// live reads past the cache.
	live   client.Reader
	events events.EventRecorder
	now    func() time.Time
}

// SetupWithManager adds the controller to mgr.
func SetupWithManager(mgr ctrl.Manager) error {
	r := &Reconciler{
		Client: mgr.GetClient(),
		live:   mgr.GetAPIReader(),
		events: mgr.GetEventRecorder("virtualmachinereplicaset-controller"),
		now:    time.Now,
	}
	err := ctrl.NewControllerManagedBy(mgr).
		Named("virtualmachineinstancereplicaset").
		// What a pass writes into the status brings no other: one that fails waits for its back-off.
		For(&virtv1.VirtualMachineInstanceReplicaSet{}, builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		Owns(&virtv1.VirtualMachineInstance{}).
		Watches(&virtv1.VirtualMachineInstance{}, handler.EnqueueRequestsFromMapFunc(r.setsFor)).
		WithOptions(controller.Options{MaxConcurrentReconciles: 4}).
		Complete(r)
	if err != nil {
		return fmt.Errorf("setting up the VirtualMachineInstanceReplicaSet controller: %w", err)
	}
	return nil
}

// steps are done in this order in every pass over a replica set. Nothing is changed by what
// the cache says alone, for it may lack what the last pass has made. Who belongs to the set
// is settled before it is filled up, and it is filled up before the traces of those that
// ended are removed.
func (r *Reconciler) steps() []func(context.Context, *scope) error {
	return []func(context.Context, *scope) error{
		r.lookAgain,
		r.release,
		r.adopt,
		r.create,
		r.remove,
		r.removeFinished,
	}
}

// Reconcile makes one pass over the replica set that req names.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	set := &virtv1.VirtualMachineInstanceReplicaSet{}
	if err := r.Get(ctx, req.NamespacedName, set); err != nil {
		if apierrors.IsNotFound(err) {
			return ctrl.Result{}, nil
		}
		return ctrl.Result{}, fmt.Errorf("reading VirtualMachineInstanceReplicaSet %s: %w", req.NamespacedName, err)
	}
	s, err := r.newScope(ctx, set)
	if err != nil {
		return ctrl.Result{}, err
	}
	err = steps.Run(ctx, s, r.steps())
	if s.gone {
		return ctrl.Result{}, nil
	}
	err = errors.Join(err, r.writeStatus(ctx, s))
	if apierrors.IsConflict(err) {
		log.FromContext(ctx).V(1).Info("Waiting for the newer object", "reason", err.Error())
		return ctrl.Result{Requeue: true}, nil //nolint:staticcheck // the event that brings the newer object may have passed already
	}
	return ctrl.Result{}, err
}

func (r *Reconciler) normal(set *virtv1.VirtualMachineInstanceReplicaSet, reason, format string, args ...any) {
	r.events.Eventf(set, nil, corev1.EventTypeNormal, reason, "Reconcile", format, args...)
}

func (r *Reconciler) warning(set *virtv1.VirtualMachineInstanceReplicaSet, reason, format string, args ...any) {
	r.events.Eventf(set, nil, corev1.EventTypeWarning, reason, "Reconcile", format, args...)
}

// Reasons of events and conditions, in the field's words.
const (
	reasonCreate       = "SuccessfulCreate"
	reasonCreateFailed = "FailedCreate"
	reasonDelete       = "SuccessfulDelete"
	reasonDeleteFailed = "FailedDelete"
	reasonPause        = "SuccessfulPaused"
	reasonResume       = "SuccessfulResumed"
	reasonPaused       = "Paused"
)
