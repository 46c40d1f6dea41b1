package virtualmachinetemplaterequest

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

	vmtemplatev1beta1 "github.com/slipway-vm/slipway/internal/api/virtualmachinetemplate/v1beta1"
	"github.com/slipway-vm/slipway/internal/steps"
)

// Reconciler makes templates of VMs.
type Reconciler struct {
	client.Client // its cache has the requests

	live   client.Reader // past the caches: all that is decided by
	events events.EventRecorder
	now    func() time.Time
}

// setup adds the controller to mgr; VMs are watched in parent's cache.
func setup(mgr, parent ctrl.Manager) error {
	r := &Reconciler{
		Client: mgr.GetClient(), live: mgr.GetAPIReader(),
		events: mgr.GetEventRecorder("template-controller"), now: time.Now,
	}
	made := handler.EnqueueRequestsFromMapFunc(r.ofMade)
	err := ctrl.NewControllerManagedBy(mgr).Named("virtualmachinetemplaterequest").
		For(&vmtemplatev1beta1.VirtualMachineTemplateRequest{}).
		Watches(&snapshotv1.VirtualMachineSnapshot{}, made).
		Watches(&cdiv1.DataVolume{}, made).
		WatchesRawSource(source.Kind(parent.GetCache(), &virtv1.VirtualMachine{},
			handler.TypedEnqueueRequestsFromMapFunc(func(ctx context.Context, vm *virtv1.VirtualMachine) []reconcile.Request { return r.ofVM(ctx, vm) }))).
		Complete(r)
	if err != nil {
		return fmt.Errorf("setting up the VirtualMachineTemplateRequest controller: %w", err)
	}
	return nil
}

// ofMade requests the request that something was made for.
func (r *Reconciler) ofMade(ctx context.Context, made client.Object) []reconcile.Request {
	uid := made.GetLabels()[vmtemplatev1beta1.LabelRequest]
	return r.those(ctx, func(request *vmtemplatev1beta1.VirtualMachineTemplateRequest) bool { return string(request.UID) == uid })
}

// ofVM requests the requests that wait for a VM.
func (r *Reconciler) ofVM(ctx context.Context, vm *virtv1.VirtualMachine) []reconcile.Request {
	return r.those(ctx, func(request *vmtemplatev1beta1.VirtualMachineTemplateRequest) bool { return waitsFor(request, vm) })
}

func (r *Reconciler) those(ctx context.Context, chosen func(*vmtemplatev1beta1.VirtualMachineTemplateRequest) bool) []reconcile.Request {
	all := &vmtemplatev1beta1.VirtualMachineTemplateRequestList{}
	if err := r.List(ctx, all); err != nil {
		log.FromContext(ctx).Error(err, "Listing VirtualMachineTemplateRequests failed")
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

// todo are the steps of a pass. What can be known before the guest is made to stand still is asked before that, and the template, by
// which it fails or not, is planned before disks are copied for it. Of a request that has failed, or is deleted before it is ready,
// everything goes; of one that is ready, what the template does not need.
func (r *Reconciler) todo(s *scope) []func(context.Context, *scope) error {
	switch {
	case ready(s.request):
		return []func(context.Context, *scope) error{r.removeSnapshot, r.release, r.expire}
	case ended(s.request), s.request.DeletionTimestamp != nil:
		return []func(context.Context, *scope) error{r.removeTemplate, r.removeDisks, r.removeSnapshot, r.release}
	}
	return []func(context.Context, *scope) error{
		r.checkMade, r.findSource, r.hold, r.takeSnapshot, r.awaitSnapshot, r.plan, r.copyDisks, r.awaitDisks, r.makeTemplate, r.giveDisks, r.finish,
	}
}

// Reconcile brings one request forward.
func (r *Reconciler) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	s, err := r.read(ctx, request.NamespacedName)
	if err != nil || s == nil {
		return ctrl.Result{}, err
	}
	err = steps.Run(ctx, s, r.todo(s))
	if found, ok := errors.AsType[*obstacle](err); ok {
		s.obstacle, err = found, nil
	}
	if s.gone || s.request.DeletionTimestamp != nil {
		return ctrl.Result{}, err
	}
	err = errors.Join(err, r.writeStatus(ctx, s))
	if apierrors.IsConflict(err) {
		log.FromContext(ctx).V(1).Info("Waiting for the newer object", "reason", err.Error())
		return ctrl.Result{Requeue: true}, nil //nolint:staticcheck // the event that brings the newer object may have passed already
	}
	if s.obstacle != nil && s.obstacle.poll {
		s.result.RequeueAfter = retry
	}
	return s.result, err
}

// tell has an event of the request's end.
func (r *Reconciler) tell(s *scope, kind, reason, message string) {
	r.events.Eventf(s.request, nil, kind, reason, "Reconcile", "%s", message)
}

// announce has an event of how the request ended, which its status now says.
func (r *Reconciler) announce(s *scope) {
	switch {
	case s.done:
		r.tell(s, corev1.EventTypeNormal, vmtemplatev1beta1.ReasonReconciled, done(s))
	case s.obstacle != nil && s.obstacle.final:
		r.tell(s, corev1.EventTypeWarning, vmtemplatev1beta1.ReasonFailed, s.obstacle.message)
	}
}
