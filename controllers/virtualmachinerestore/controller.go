package virtualmachinerestore

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/tools/events"
	virtv1 "kubevirt.io/api/core/v1"
	snapshotv1 "kubevirt.io/api/snapshot/v1beta1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/slipway-vm/slipway/internal/steps"
	"github.com/slipway-vm/slipway/internal/verb"
)

// Machines shuts VMs down, and has them stay so.
type Machines interface {
	Stop(ctx context.Context, vm client.ObjectKey) error
}

// Reconciler restores VMs from their snapshots.
type Reconciler struct {
	client.Client // its cache has the restores

	live     client.Reader // past the caches: all that is decided by
	machines Machines
	events   events.EventRecorder
	now      func() time.Time
}

// SetupWithManager adds the controller to mgr, whose cluster has VolumeSnapshots; VMs and their disks are watched in parent's cache.
func SetupWithManager(mgr, parent ctrl.Manager) error {
	machines, err := verb.NewCaller(mgr.GetConfig())
	if err != nil {
		return fmt.Errorf("setting up the VirtualMachineRestore controller: %w", err)
	}
	r := &Reconciler{
		Client: mgr.GetClient(), live: mgr.GetAPIReader(), machines: machines,
		events: mgr.GetEventRecorder("vmrestore-controller"), now: time.Now,
	}
	err = ctrl.NewControllerManagedBy(mgr).Named("virtualmachinerestore").
		For(&snapshotv1.VirtualMachineRestore{}).
		Watches(&snapshotv1.VirtualMachineSnapshot{}, handler.EnqueueRequestsFromMapFunc(r.ofSnapshot)).
		WatchesRawSource(source.Kind(parent.GetCache(), &virtv1.VirtualMachine{},
			handler.TypedEnqueueRequestsFromMapFunc(func(ctx context.Context, vm *virtv1.VirtualMachine) []reconcile.Request { return r.ofMachine(ctx, vm) }))).
		WatchesRawSource(source.Kind(parent.GetCache(), &virtv1.VirtualMachineInstance{},
			handler.TypedEnqueueRequestsFromMapFunc(func(ctx context.Context, vmi *virtv1.VirtualMachineInstance) []reconcile.Request {
				return r.ofMachine(ctx, vmi)
			}))).
		WatchesRawSource(source.Kind(parent.GetCache(), &corev1.PersistentVolumeClaim{},
			handler.TypedEnqueueRequestsFromMapFunc(func(ctx context.Context, claim *corev1.PersistentVolumeClaim) []reconcile.Request {
				return r.ofMade(ctx, claim)
			}))).
		WatchesRawSource(source.Kind(parent.GetCache(), &cdiv1.DataVolume{},
			handler.TypedEnqueueRequestsFromMapFunc(func(ctx context.Context, dv *cdiv1.DataVolume) []reconcile.Request { return r.ofMade(ctx, dv) }))).
		Complete(r)
	if err != nil {
		return fmt.Errorf("setting up the VirtualMachineRestore controller: %w", err)
	}
	return nil
}

// ofSnapshot requests the restores that wait for a snapshot.
func (r *Reconciler) ofSnapshot(ctx context.Context, snapshot client.Object) []reconcile.Request {
	return r.those(ctx, snapshot.GetNamespace(), func(o *snapshotv1.VirtualMachineRestore) bool {
		return o.Spec.VirtualMachineSnapshotName == snapshot.GetName() && !ended(o)
	})
}

// ofMachine requests the restores of a VM, which has the name of its instance.
func (r *Reconciler) ofMachine(ctx context.Context, machine client.Object) []reconcile.Request {
	return r.those(ctx, machine.GetNamespace(), func(o *snapshotv1.VirtualMachineRestore) bool {
		return o.Spec.Target.Name == machine.GetName() && !ended(o)
	})
}

// ofMade requests the restore that made a claim or a DataVolume.
func (r *Reconciler) ofMade(_ context.Context, object client.Object) []reconcile.Request {
	name := object.GetAnnotations()[AnnotationName]
	if name == "" {
		return nil
	}
	return []reconcile.Request{{NamespacedName: client.ObjectKey{Namespace: object.GetNamespace(), Name: name}}}
}

func (r *Reconciler) those(ctx context.Context, namespace string, chosen func(*snapshotv1.VirtualMachineRestore) bool) []reconcile.Request {
	all := &snapshotv1.VirtualMachineRestoreList{}
	if err := r.List(ctx, all, client.InNamespace(namespace)); err != nil {
		log.FromContext(ctx).Error(err, "Listing VirtualMachineRestores failed")
		return nil
	}
	var requests []reconcile.Request
	for i := range all.Items {
		if chosen(&all.Items[i]) {
			requests = append(requests, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&all.Items[i])})
		}
	}
	return requests
}

// todo are the steps of a pass. Nothing is asked of the VM before there is something to restore it from, nothing is
// made before the VM stands still and is locked, and its disks are there, and have what they are filled from, before it names them. What it had before
// goes after that, and before it may start, but for claims whose places are taken, which go first. A restore that is deleted too early takes back what it made, or
// makes what is missing of the VM's disks.
func (r *Reconciler) todo(s *scope) []func(context.Context, *scope) error {
	begin := []func(context.Context, *scope) error{
		r.protect, r.findSnapshot, r.checkTarget, r.stopTarget, r.lock, r.recordVolumes, r.replaceClaims, r.createClaims, r.holdSnapshot, r.createTypes, r.writeMachine,
	}
	finish := []func(context.Context, *scope) error{r.ownVolumes, r.ownTypes, r.takeState, r.removeObsolete, r.unlock, r.finish}
	switch {
	case s.restore.DeletionTimestamp != nil && s.restored() && !completed(s.restore):
		return append(finish, r.removeFinalizer)
	case s.restore.DeletionTimestamp != nil && !completed(s.restore) && inPlace(s.restore):
		return []func(context.Context, *scope) error{r.putBack, r.unlock, r.removeFinalizer}
	case s.restore.DeletionTimestamp != nil && !completed(s.restore):
		return []func(context.Context, *scope) error{r.takeBack, r.unlock, r.removeFinalizer}
	case s.restore.DeletionTimestamp != nil:
		return []func(context.Context, *scope) error{r.unlock, r.removeFinalizer}
	case ended(s.restore):
		return []func(context.Context, *scope) error{r.unlock}
	}
	return append(begin, finish...)
}

// Reconcile brings one restore forward.
func (r *Reconciler) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	s, err := r.read(ctx, request.NamespacedName)
	if err != nil || s == nil {
		return ctrl.Result{}, err
	}
	err = steps.Run(ctx, s, r.todo(s))
	if found, ok := errors.AsType[*problem](err); ok {
		s.problem, err = found, nil
		r.tell(s, found)
	}
	if s.gone {
		return ctrl.Result{}, err
	}
	err = errors.Join(err, r.writeStatus(ctx, s))
	if apierrors.IsConflict(err) {
		log.FromContext(ctx).V(1).Info("Waiting for the newer object", "reason", err.Error())
		return ctrl.Result{Requeue: true}, nil //nolint:staticcheck // the event that brings the newer object may have passed already
	}
	return s.next(), err
}

// problem is what the user has to know, and may end by itself.
type problem struct{ message string }

// Error is for the user.
func (p *problem) Error() string { return p.message }

func fail(format string, args ...any) error { return &problem{message: fmt.Sprintf(format, args...)} }

// tell has an event of a problem that was not told of before.
func (r *Reconciler) tell(s *scope, found *problem) {
	for _, c := range status(s.restore).Conditions {
		if c.Reason == found.message {
			return
		}
	}
	r.events.Eventf(s.restore, nil, corev1.EventTypeWarning, reasonError, "Reconcile", "VirtualMachineRestore encountered error %s", found.message)
}
