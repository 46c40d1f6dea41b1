// Package virtualmachine keeps VirtualMachines as they are wanted: it creates their
// DataVolumes, starts them by creating a VirtualMachineInstance, stops them by deleting
// it, starts them again after a crash, and tells in their status how they are.
package virtualmachine

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/util/workqueue"
	virtv1 "kubevirt.io/api/core/v1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	"github.com/slipway-vm/slipway/controllers/instancetype"
	"github.com/slipway-vm/slipway/controllers/progress"
	"github.com/slipway-vm/slipway/controllers/virtualmachineinstance"
	"github.com/slipway-vm/slipway/internal/rename"
	"github.com/slipway-vm/slipway/internal/steps"
)

// Reconciler brings VirtualMachines to the state that their specs ask for.
type Reconciler struct {
	client.Client
	// live reads past the cache.
	live     client.Reader
	resolver instancetype.Resolver
	events   events.EventRecorder
	copies   *progress.Listeners // how far the pods are that copy volumes
	options  Options
	now      func() time.Time
}

// Options are what the controller cannot learn from the cluster.
type Options struct {
	// CopyImage holds /slipway, which copies volumes.
	CopyImage string
}

// What failed is tried again after firstRetry, then after twice that, and so on up to lastRetry.
const (
	firstRetry = 5 * time.Millisecond
	lastRetry  = 15 * time.Second
)

// SetupWithManager adds the controller to mgr.
func SetupWithManager(mgr ctrl.Manager, options Options) error {
	r := &Reconciler{
		Client: mgr.GetClient(),
		live:   mgr.GetAPIReader(),
		// Instance types are read at a start only, so no cache of them is kept.
		resolver: instancetype.Resolver{Reader: mgr.GetAPIReader()},
		events:   mgr.GetEventRecorder("virtualmachine-controller"),
		// A pass is made from time to time while volumes are copied, which asks what there is to tell.
		copies:  progress.New(func(context.Context, types.NamespacedName) {}),
		options: options,
		now:     time.Now,
	}
	if err := mgr.Add(r.copies); err != nil {
		return fmt.Errorf("setting up the VirtualMachine controller: %w", err)
	}
	err := ctrl.NewControllerManagedBy(mgr).
		Named("virtualmachine").
		For(&virtv1.VirtualMachine{}).
		Owns(&virtv1.VirtualMachineInstance{}).
		Owns(&cdiv1.DataVolume{}).
		Owns(&corev1.Pod{}).
		Watches(&cdiv1.DataVolume{}, handler.EnqueueRequestsFromMapFunc(r.namers)).
		Watches(&corev1.PersistentVolumeClaim{}, handler.EnqueueRequestsFromMapFunc(r.foreseers)).
		Watches(&virtv1.KubeVirt{}, handler.EnqueueRequestsFromMapFunc(r.everyMachine), builder.WithPredicates(trackingChanged())).
		Watches(&corev1.Namespace{}, handler.EnqueueRequestsFromMapFunc(r.everyMachine), builder.WithPredicates(predicate.LabelChangedPredicate{})).
		Watches(&virtv1.VirtualMachine{}, handler.EnqueueRequestsFromMapFunc(counterparts)).
		WithOptions(controller.Options{
			MaxConcurrentReconciles: 4,
			// A start may wait for what is not watched: an instance type, or the DataSource of a disk.
			RateLimiter: workqueue.NewTypedItemExponentialFailureRateLimiter[ctrl.Request](firstRetry, lastRetry),
		}).
		Complete(r)
	if err != nil {
		return fmt.Errorf("setting up the VirtualMachine controller: %w", err)
	}
	return nil
}

// steps are done in this order in every pass over a VM that is not being deleted: the
// disks of a VM are made, unless they were kept for it, and filled with what its changed volumes had, whether it runs or not, what is
// requested says whether it is to run, and a failed start is written down before its VMI, the only trace of it, is removed; a VM without
// a VMI finds out what it waits for, also when it cannot start; what it is made from is written out before it starts, where the cluster asks for that;
// a VMI that stays then takes up what it can of the VM's
// changes, volumes before all else, and is told whether it can be backed up; the dump of its memory comes last.
func (r *Reconciler) steps() []func(context.Context, *scope) error {
	return []func(context.Context, *scope) error{
		r.addFinalizer,
		r.adopt,
		r.takeKept,
		r.createDataVolumes,
		r.keepVolumes,
		r.migrateVolumes,
		r.readRequests,
		r.noteFailedStart,
		r.foresee,
		r.expand,
		r.run,
		r.plugVolumes,
		r.followChanges,
		r.trackChanges,
		r.dumpMemory,
	}
}

// Reconcile makes one pass over the VM that req names.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	vm := &virtv1.VirtualMachine{}
	if err := r.Get(ctx, req.NamespacedName, vm); err != nil {
		if apierrors.IsNotFound(err) {
			r.copies.Stop(req.NamespacedName)
			return ctrl.Result{}, nil
		}
		return ctrl.Result{}, fmt.Errorf("reading VirtualMachine %s: %w", req.NamespacedName, err)
	}
	s, err := r.newScope(ctx, vm)
	if err != nil {
		return ctrl.Result{}, err
	}
	todo, arriving := r.todo(vm)
	s.failure = steps.Run(ctx, s, todo)
	if s.gone || arriving && s.failure == nil {
		return ctrl.Result{}, nil // its status is that of the VM whose place it takes
	}
	err = errors.Join(s.failure, r.writeStatus(ctx, s))
	if apierrors.IsConflict(err) {
		log.FromContext(ctx).V(1).Info("Waiting for the newer object", "reason", err.Error())
		return ctrl.Result{Requeue: true}, nil //nolint:staticcheck // the event that brings the newer object may have passed already
	}
	return s.result, err
}

// todo are the steps of a pass over vm; arriving says that vm takes the place of a VM that is being
// renamed, and is not on its own yet.
func (r *Reconciler) todo(vm *virtv1.VirtualMachine) (todo []func(context.Context, *scope) error, arriving bool) {
	_, arriving = rename.OriginOf(vm)
	switch {
	case vm.DeletionTimestamp != nil:
		return r.endSteps(vm), false
	case arriving:
		return []func(context.Context, *scope) error{r.arrive}, true
	case rename.Target(vm) != "":
		return r.renameSteps(), false
	}
	return r.steps(), false
}

// counterparts are the VMs that wait for a change of vm: of the two of a rename each for the other.
func counterparts(_ context.Context, vm client.Object) []ctrl.Request {
	var found []ctrl.Request
	origin, _ := rename.OriginOf(vm)
	for _, name := range []string{rename.Target(vm), origin.Name} {
		if name != "" {
			found = append(found, ctrl.Request{NamespacedName: client.ObjectKey{Namespace: vm.GetNamespace(), Name: name}})
		}
	}
	return found
}

// namers are the VMs whose templates name dv, when that is nobody's: it is kept for one of them, or was for an earlier one; and those that
// have it as a volume and tell of it.
func (r *Reconciler) namers(ctx context.Context, dv client.Object) []ctrl.Request {
	if metav1.GetControllerOf(dv) != nil {
		return nil
	}
	return r.who(ctx, dv.GetNamespace(), func(vm *virtv1.VirtualMachine) bool {
		named := func(template virtv1.DataVolumeTemplateSpec) bool { return template.Name == dv.GetName() }
		return slices.ContainsFunc(vm.Spec.DataVolumeTemplates, named) || tellsOf(vm, dv.GetName())
	})
}

// foreseers are the VMs that tell of claim.
func (r *Reconciler) foreseers(ctx context.Context, claim client.Object) []ctrl.Request {
	return r.who(ctx, claim.GetNamespace(), func(vm *virtv1.VirtualMachine) bool { return tellsOf(vm, claim.GetName()) })
}

// tellsOf says whether a claim of the name is one of vm's volumes, and there is no instance that follows it.
func tellsOf(vm *virtv1.VirtualMachine, claim string) bool {
	return !vm.Status.Created && vm.Spec.Template != nil && slices.ContainsFunc(vm.Spec.Template.Spec.Volumes, func(volume virtv1.Volume) bool {
		return virtualmachineinstance.ClaimOf(volume) == claim
	})
}

// who are the VMs of namespace that concerns holds of. They are only looked at, so they are not copied.
func (r *Reconciler) who(ctx context.Context, namespace string, concerns func(*virtv1.VirtualMachine) bool) []ctrl.Request {
	all := &virtv1.VirtualMachineList{}
	if err := r.List(ctx, all, client.InNamespace(namespace), client.UnsafeDisableDeepCopy); err != nil {
		log.FromContext(ctx).Error(err, "Listing VirtualMachines failed")
		return nil
	}
	var found []ctrl.Request
	for i := range all.Items {
		if concerns(&all.Items[i]) {
			found = append(found, ctrl.Request{NamespacedName: client.ObjectKeyFromObject(&all.Items[i])})
		}
	}
	return found
}

func (r *Reconciler) event(vm *virtv1.VirtualMachine, kind, reason, format string, args ...any) {
	r.events.Eventf(vm, nil, kind, reason, "Reconcile", format, args...)
}

func (r *Reconciler) normal(vm *virtv1.VirtualMachine, reason, format string, args ...any) {
	r.event(vm, corev1.EventTypeNormal, reason, format, args...)
}

func (r *Reconciler) warning(vm *virtv1.VirtualMachine, reason, format string, args ...any) {
	r.event(vm, corev1.EventTypeWarning, reason, format, args...)
}

// Reasons of events, in the field's words.
const (
	reasonCreate           = "SuccessfulCreate"
	reasonCreateFailed     = "FailedCreate"
	reasonDelete           = "SuccessfulDelete"
	reasonDeleteFailed     = "FailedDelete"
	reasonDataVolume       = "SuccessfulDataVolumeCreate"
	reasonDataVolumeFailed = "FailedDataVolumeCreate"
	reasonRenamed          = "Renamed"
	reasonKept             = "VolumesKept"
	reasonMigrated         = "VolumeMigrated"
	reasonMigrationFailed  = "VolumeMigrationFailed"
)
