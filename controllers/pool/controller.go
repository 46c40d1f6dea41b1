// Package pool keeps as many VirtualMachines as a VirtualMachinePool asks for: it makes
// what is missing from its template, each with a name and disks of its own, deletes what
// is too much, and brings a new template to those that there are.
package pool

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/tools/events"
	virtv1 "kubevirt.io/api/core/v1"
	poolv1 "kubevirt.io/api/pool/v1beta1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	"github.com/slipway-vm/slipway/internal/steps"
)

// Reconciler brings pools to the number and the template that their specs ask for.
type Reconciler struct {
	client.Client
	// live reads past the cache.
	live   client.Reader
	events events.EventRecorder
	now    func() time.Time
}

// ends lets the ends of objects through.
var ends = predicate.Funcs{
	CreateFunc:  func(event.CreateEvent) bool { return false },
	UpdateFunc:  func(event.UpdateEvent) bool { return false },
	GenericFunc: func(event.GenericEvent) bool { return false },
}

// SetupWithManager adds the controller to mgr.
func SetupWithManager(mgr ctrl.Manager) error {
	r := &Reconciler{
		Client: mgr.GetClient(),
		live:   mgr.GetAPIReader(),
		events: mgr.GetEventRecorder("virtualmachinepool-controller"),
		now:    time.Now,
	}
	err := ctrl.NewControllerManagedBy(mgr).
		Named("virtualmachinepool").
		// What a pass writes into the status brings no other: one that fails waits for its back-off.
		For(&poolv1.VirtualMachinePool{}, builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		// A VM's status says all that a pool must know of its instance in time.
		Owns(&virtv1.VirtualMachine{}).
		Watches(&cdiv1.DataVolume{}, handler.EnqueueRequestsFromMapFunc(poolFor), builder.WithPredicates(ends)).
		Watches(&corev1.PersistentVolumeClaim{}, handler.EnqueueRequestsFromMapFunc(poolFor), builder.WithPredicates(ends)).
		WithOptions(controller.Options{MaxConcurrentReconciles: 4}).
		Complete(r)
	if err != nil {
		return fmt.Errorf("setting up the VirtualMachinePool controller: %w", err)
	}
	return nil
}

// steps are done in this order in every pass over a pool. Nothing is changed by what the
// cache says alone, for it may lack what the last pass has made. Who belongs to the pool
// is settled before its number is, whom it holds before all else, and VMs get the new template before guests are
// restarted to take it up.
func (r *Reconciler) steps() []func(context.Context, *scope) error {
	return []func(context.Context, *scope) error{
		r.lookAgain,
		r.guard,
		r.hold,
		r.letGo,
		r.release,
		r.create,
		r.remove,
		r.healed,
		r.update,
		r.replace,
		r.restart,
		r.leave,
	}
}

// Reconcile makes one pass over the pool that req names.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	pool := &poolv1.VirtualMachinePool{}
	if err := r.Get(ctx, req.NamespacedName, pool); err != nil {
		if apierrors.IsNotFound(err) {
			return ctrl.Result{}, nil
		}
		return ctrl.Result{}, fmt.Errorf("reading VirtualMachinePool %s: %w", req.NamespacedName, err)
	}
	s, err := r.newScope(ctx, pool)
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
	return ctrl.Result{RequeueAfter: s.plan.again}, err
}

func (r *Reconciler) normal(pool *poolv1.VirtualMachinePool, reason, format string, args ...any) {
	r.events.Eventf(pool, nil, corev1.EventTypeNormal, reason, "Reconcile", format, args...)
}

func (r *Reconciler) warning(pool *poolv1.VirtualMachinePool, reason, format string, args ...any) {
	r.events.Eventf(pool, nil, corev1.EventTypeWarning, reason, "Reconcile", format, args...)
}

// Reasons of events and conditions, in the field's words.
const (
	reasonCreate         = "SuccessfulCreate"
	reasonCreateFailed   = "FailedCreate"
	reasonDelete         = "SuccessfulDelete"
	reasonDeleteFailed   = "FailedDelete"
	reasonUpdate         = "SuccessfulUpdate"
	reasonUpdateFailed   = "FailedUpdate"
	reasonPause          = "SuccessfulPaused"
	reasonResume         = "SuccessfulResume"
	reasonScaleOutFailed = "FailedScaleOut"
	reasonScaleInFailed  = "FailedScaleIn"
	reasonHealing        = "Autohealing"
	reasonHealingFailed  = "FailedAutohealing"
)
