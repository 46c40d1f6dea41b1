package virtualmachineinstance

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/tools/events"
	virtv1 "kubevirt.io/api/core/v1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	"github.com/slipway-vm/slipway/controllers/node"
	"github.com/slipway-vm/slipway/internal/metric"
	"github.com/slipway-vm/slipway/internal/steps"
)

// Options are what the controller cannot learn from the cluster.
type Options struct {
	// LauncherImage runs virtual machines, ProvisionerImage holds /slipway.
	LauncherImage    string
	ProvisionerImage string
}

// Reconciler brings VirtualMachineInstances to the state that their specs ask for.
type Reconciler struct {
	client.Client
	// live reads past the cache, where a stale answer would do harm.
	live    client.Reader
	events  events.EventRecorder
	options Options
	now     func() time.Time
	cids    cids
	written written
	begin   sync.Once
	began   time.Time // when the first pass did
}

// SetupWithManager adds the controller to mgr.
func SetupWithManager(ctx context.Context, mgr ctrl.Manager, options Options) error {
	r := &Reconciler{
		Client:  mgr.GetClient(),
		live:    mgr.GetAPIReader(),
		events:  mgr.GetEventRecorder("virtualmachineinstance-controller"),
		options: options,
		now:     time.Now,
	}
	if err := index(ctx, mgr); err != nil {
		return err
	}
	err := ctrl.NewControllerManagedBy(mgr).
		Named("virtualmachineinstance").
		For(&virtv1.VirtualMachineInstance{}).
		Owns(&corev1.Pod{}).
		Owns(&policyv1.PodDisruptionBudget{}, builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		Watches(&corev1.PersistentVolumeClaim{}, handler.EnqueueRequestsFromMapFunc(r.usersOfClaim)).
		Watches(&cdiv1.DataVolume{}, handler.EnqueueRequestsFromMapFunc(r.usersOfClaim)).
		Watches(&virtv1.VirtualMachineInstance{}, handler.EnqueueRequestsFromMapFunc(r.rivalsOf)).
		Watches(&corev1.Pod{}, handler.EnqueueRequestsFromMapFunc(r.filledBy)).
		Watches(&corev1.Node{}, handler.EnqueueRequestsFromMapFunc(r.affectedByNode), builder.WithPredicates(node.Changed())).
		Watches(&virtv1.KubeVirt{}, handler.EnqueueRequestsFromMapFunc(r.affectedByKubeVirt), builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		WithOptions(controller.Options{MaxConcurrentReconciles: 4}).
		Complete(r)
	if err != nil {
		return fmt.Errorf("setting up the VirtualMachineInstance controller: %w", err)
	}
	return nil
}

// steps are done in this order in every pass over a VMI that is not being deleted,
// until one ends the pass: a VMI that ended needs nothing more; a lost node makes
// the pod's own state meaningless; a guest's address is told before its pod is there; a running guest may get volumes; without volumes no pod can be built.
func (r *Reconciler) steps() []func(context.Context, *scope) error {
	return []func(context.Context, *scope) error{
		r.addFinalizer,
		r.clearEnded,
		r.noteLostNode,
		r.giveCID,
		r.attachVolumes,
		r.followPod,
		r.makeState,
		r.waitForVolumes,
		r.createPod,
	}
}

// Reconcile makes one pass over the VMI that req names.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	r.begin.Do(func() { r.began = r.now() })
	vmi := &virtv1.VirtualMachineInstance{}
	if err := r.Get(ctx, req.NamespacedName, vmi); err != nil {
		if apierrors.IsNotFound(err) {
			metric.ForgetSyncs(req.Namespace, req.Name)
			r.written.forget(req.NamespacedName)
			return ctrl.Result{}, nil
		}
		return ctrl.Result{}, fmt.Errorf("reading VirtualMachineInstance %s: %w", req.NamespacedName, err)
	}
	if r.written.unseen(vmi, r.now()) {
		return ctrl.Result{RequeueAfter: lagBound}, nil // the event that brings it starts the next pass sooner
	}
	metric.Synced(req.Namespace, req.Name)
	s, err := r.newScope(ctx, vmi)
	if err != nil {
		return ctrl.Result{}, err
	}
	if vmi.DeletionTimestamp != nil {
		return s.result, again(ctx, r.finalize(ctx, s))
	}
	failure := errors.Join(steps.Run(ctx, s, r.steps()), r.guard(ctx, s))
	return s.result, again(ctx, errors.Join(failure, r.writeStatus(ctx, s)))
}

// again turns a conflict, which only says that the cache lags behind, into silence: the
// event that brings the newer object starts the next pass.
func again(ctx context.Context, err error) error {
	if apierrors.IsConflict(err) {
		log.FromContext(ctx).V(1).Info("Waiting for the newer object", "reason", err.Error())
		return nil
	}
	return err
}
