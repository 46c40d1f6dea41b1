package virtualmachinesnapshot

import (
	"context"
	"errors"
	"fmt"
	"time"

	csiv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	virtv1 "kubevirt.io/api/core/v1"
	snapshotv1 "kubevirt.io/api/snapshot/v1beta1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/slipway-vm/slipway/internal/steps"
	"github.com/slipway-vm/slipway/internal/verb"
)

// Guests makes the file systems of a running VirtualMachineInstance's guest stand still, for limit at most, and go on.
type Guests interface {
	Freeze(ctx context.Context, vmi client.ObjectKey, limit time.Duration) error
	Unfreeze(ctx context.Context, vmi client.ObjectKey) error
}

// Reconciler takes snapshots of VMs.
type Reconciler struct {
	client.Client // its cache has the snapshots

	live   client.Reader // past the caches: all that is decided by
	guests Guests
	events events.EventRecorder
	now    func() time.Time
}

// SetupWithManager adds the controller to mgr, whose cluster has VolumeSnapshots; VMs and claims are watched in parent's cache.
func SetupWithManager(mgr, parent ctrl.Manager) error {
	guests, err := verb.NewCaller(mgr.GetConfig())
	if err != nil {
		return fmt.Errorf("setting up the VirtualMachineSnapshot controller: %w", err)
	}
	r := &Reconciler{
		Client: mgr.GetClient(), live: mgr.GetAPIReader(), guests: guests,
		events: mgr.GetEventRecorder("vmsnapshot-controller"), now: time.Now,
	}
	err = ctrl.NewControllerManagedBy(mgr).Named("virtualmachinesnapshot").
		For(&snapshotv1.VirtualMachineSnapshot{}).
		Watches(&snapshotv1.VirtualMachineSnapshotContent{}, handler.EnqueueRequestsFromMapFunc(r.ofContent), builder.OnlyMetadata).
		Watches(&csiv1.VolumeSnapshot{}, handler.EnqueueRequestsFromMapFunc(r.ofVolumeSnapshot)).
		WatchesRawSource(source.Kind(parent.GetCache(), &virtv1.VirtualMachine{},
			handler.TypedEnqueueRequestsFromMapFunc(func(ctx context.Context, vm *virtv1.VirtualMachine) []reconcile.Request { return r.ofMachine(ctx, vm) }))).
		WatchesRawSource(source.Kind(parent.GetCache(), &virtv1.VirtualMachineInstance{},
			handler.TypedEnqueueRequestsFromMapFunc(func(ctx context.Context, vmi *virtv1.VirtualMachineInstance) []reconcile.Request {
				return r.ofMachine(ctx, vmi)
			}))).
		WatchesRawSource(source.Kind(parent.GetCache(), &corev1.PersistentVolumeClaim{}, handler.TypedEnqueueRequestsFromMapFunc(r.ofClaim))).
		Complete(r)
	if err != nil {
		return fmt.Errorf("setting up the VirtualMachineSnapshot controller: %w", err)
	}
	return nil
}

// ofContent requests the snapshot that a content is of.
func (r *Reconciler) ofContent(ctx context.Context, content client.Object) []reconcile.Request {
	return r.those(ctx, content.GetNamespace(), func(s *snapshotv1.VirtualMachineSnapshot) bool { return ContentName(s) == content.GetName() })
}

// ofVolumeSnapshot requests the snapshot that a VolumeSnapshot is part of.
func (r *Reconciler) ofVolumeSnapshot(ctx context.Context, object client.Object) []reconcile.Request {
	owner := metav1.GetControllerOf(object)
	if owner == nil || owner.Kind != kindContent {
		return nil
	}
	return r.those(ctx, object.GetNamespace(), func(s *snapshotv1.VirtualMachineSnapshot) bool { return ContentName(s) == owner.Name })
}

// ofMachine requests the snapshots that are being taken of a VM, which has the name of its instance.
func (r *Reconciler) ofMachine(ctx context.Context, machine client.Object) []reconcile.Request {
	return r.those(ctx, machine.GetNamespace(), func(s *snapshotv1.VirtualMachineSnapshot) bool {
		return s.Spec.Source.Name == machine.GetName() && !ended(s)
	})
}

// ofClaim requests the snapshots that may wait for a claim.
func (r *Reconciler) ofClaim(ctx context.Context, claim *corev1.PersistentVolumeClaim) []reconcile.Request {
	return r.those(ctx, claim.Namespace, func(s *snapshotv1.VirtualMachineSnapshot) bool { return !ended(s) })
}

func (r *Reconciler) those(ctx context.Context, namespace string, chosen func(*snapshotv1.VirtualMachineSnapshot) bool) []reconcile.Request {
	all := &snapshotv1.VirtualMachineSnapshotList{}
	if err := r.List(ctx, all, client.InNamespace(namespace)); err != nil {
		log.FromContext(ctx).Error(err, "Listing VirtualMachineSnapshots failed")
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

// todo are the steps of a pass. Of a snapshot that is taken: the VM is locked before anything is read of it; what
// the snapshot will have been is said before any disk is taken, and the guest goes on before the content counts as made; the VM is unlocked last. One that has
// run out of time, or is deleted, lets all of it go in the same order.
func (r *Reconciler) todo(s *scope) []func(context.Context, *scope) error {
	switch {
	case s.snapshot.DeletionTimestamp != nil:
		return []func(context.Context, *scope) error{r.letGo, r.removeContent, r.unlock, r.removeFinalizer}
	case s.expired():
		return []func(context.Context, *scope) error{r.protect, r.letGo, r.removeContent, r.unlock}
	case s.succeeded():
		return []func(context.Context, *scope) error{r.protect, r.readVolumes, r.writeContentStatus, r.unlock}
	}
	return []func(context.Context, *scope) error{
		r.protect, r.lock, r.announce, r.makeContent, r.keepTypes, r.readVolumes, r.takeVolumes, r.settle, r.writeContentStatus, r.unlock,
	}
}

// Reconcile brings one snapshot forward.
func (r *Reconciler) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	s, err := r.read(ctx, request.NamespacedName)
	if err != nil || s == nil {
		return ctrl.Result{}, err
	}
	err = steps.Run(ctx, s, r.todo(s))
	if found, ok := errors.AsType[*problem](err); ok {
		s.problem, err = found, r.noteProblem(ctx, s, found)
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
