package virtualmachineexport

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/tools/events"
	virtv1 "kubevirt.io/api/core/v1"
	exportv1 "kubevirt.io/api/export/v1beta1"
	snapshotv1 "kubevirt.io/api/snapshot/v1beta1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/slipway-vm/slipway/internal/steps"
	"github.com/slipway-vm/slipway/internal/vmexport"
)

// Options configure the controller.
type Options struct {
	// Image holds /slipway, which the pods of exports run.
	Image string
	// Namespace is where Slipway is installed, and virt-exportproxy published.
	Namespace string
	// Certificate is a file with whom clients outside of the cluster are to trust, in PEM; it may come and change
	// at any time. "" for none.
	Certificate string
}

// Reconciler serves exports.
type Reconciler struct {
	client.Client // its cache has the exports

	live    client.Reader // past the caches: all that is decided by
	options Options
	events  events.EventRecorder
	now     func() time.Time
}

// SetupWithManager adds the controller to mgr.
func SetupWithManager(mgr ctrl.Manager, options Options) error {
	r := &Reconciler{
		Client: mgr.GetClient(), live: mgr.GetAPIReader(), options: options,
		events: mgr.GetEventRecorder("export-controller"), now: time.Now,
	}
	of := func(kinds ...string) handler.EventHandler {
		return handler.EnqueueRequestsFromMapFunc(func(ctx context.Context, object client.Object) []reconcile.Request {
			return r.of(ctx, object, kinds)
		})
	}
	err := ctrl.NewControllerManagedBy(mgr).Named("virtualmachineexport").
		For(&exportv1.VirtualMachineExport{}).
		Owns(&corev1.Pod{}).
		Watches(&corev1.Pod{}, handler.EnqueueRequestsFromMapFunc(r.ofPod)).
		Watches(&corev1.PersistentVolumeClaim{}, handler.EnqueueRequestsFromMapFunc(r.ofClaim)).
		Watches(&virtv1.VirtualMachine{}, of(KindMachine)).
		Watches(&virtv1.VirtualMachineInstance{}, of(KindMachine)).
		Watches(&snapshotv1.VirtualMachineSnapshot{}, of(KindSnapshot), builder.OnlyMetadata).
		Watches(&networkingv1.Ingress{}, handler.EnqueueRequestsFromMapFunc(r.ofIngress)).
		Complete(r)
	if err != nil {
		return fmt.Errorf("setting up the VirtualMachineExport controller: %w", err)
	}
	return nil
}

// of requests the exports whose source is an object of one of kinds that has the name of object.
func (r *Reconciler) of(ctx context.Context, object client.Object, kinds []string) []reconcile.Request {
	return r.those(ctx, object.GetNamespace(), func(e *exportv1.VirtualMachineExport) bool {
		return e.Spec.Source.Name == object.GetName() && slices.Contains(kinds, e.Spec.Source.Kind)
	})
}

// ofClaim requests the exports that a claim may be of.
func (r *Reconciler) ofClaim(ctx context.Context, claim client.Object) []reconcile.Request {
	return r.those(ctx, claim.GetNamespace(), func(e *exportv1.VirtualMachineExport) bool {
		return e.Spec.Source.Kind != KindClaim || e.Spec.Source.Name == claim.GetName()
	})
}

// ofPod requests the exports that a pod with claims may keep waiting, or end: those with a claim of it, and those whose
// server is not there.
func (r *Reconciler) ofPod(ctx context.Context, object client.Object) []reconcile.Request {
	pod, ok := object.(*corev1.Pod)
	if !ok || isExporter(pod) {
		return nil
	}
	claims := claimsOf(pod)
	if len(claims) == 0 {
		return nil
	}
	return r.those(ctx, pod.Namespace, func(e *exportv1.VirtualMachineExport) bool {
		if e.Spec.Source.Kind == KindClaim {
			return slices.Contains(claims, e.Spec.Source.Name)
		}
		server := &corev1.Pod{}
		if err := r.Get(ctx, client.ObjectKey{Namespace: e.Namespace, Name: vmexport.ServerName(e.Name)}, server); err != nil {
			return true // it waits, maybe for this
		}
		return slices.ContainsFunc(claimsOf(server), func(claim string) bool { return slices.Contains(claims, claim) })
	})
}

// those requests the chosen exports of namespace; of all for "".
func (r *Reconciler) those(ctx context.Context, namespace string, chosen func(*exportv1.VirtualMachineExport) bool) []reconcile.Request {
	all := &exportv1.VirtualMachineExportList{}
	if err := r.List(ctx, all, client.InNamespace(namespace)); err != nil {
		log.FromContext(ctx).Error(err, "Listing VirtualMachineExports failed")
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

// todo are the steps of a pass. Whether the volumes stand still is looked at before anything is made, and each
// time again: a server whose volumes a VM takes goes. The pod is made when all that it waits for is there, and how it is
// reached from outside counts once it serves.
func (r *Reconciler) todo() []func(context.Context, *scope) error {
	return []func(context.Context, *scope) error{
		r.expire, r.readPod, r.findVolumes, r.checkUsers, r.endServer, r.makeClaims, r.makeToken, r.makeService, r.makeServer,
		r.findPublished,
	}
}

// Reconcile brings one export forward.
func (r *Reconciler) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	s, err := r.read(ctx, request.NamespacedName)
	if err != nil || s == nil {
		return ctrl.Result{}, err
	}
	err = steps.Run(ctx, s, r.todo())
	if found, ok := errors.AsType[*problem](err); ok {
		s.problem, err = found, nil
	}
	if err == nil && !s.gone { // after a failure only a part is known, and what was written stays true
		err = r.writeStatus(ctx, s)
	}
	switch {
	case apierrors.IsConflict(err):
		log.FromContext(ctx).V(1).Info("Waiting for the newer object", "reason", err.Error())
		return ctrl.Result{Requeue: true}, nil //nolint:staticcheck // the event that brings the newer object may have passed already
	case err != nil || s.gone:
		return ctrl.Result{}, err
	}
	return s.next(), nil
}

// problem is what the user has to know, and may end by itself.
type problem struct{ message string }

// Error is for the user.
func (p *problem) Error() string { return p.message }

func fail(format string, args ...any) error { return &problem{message: fmt.Sprintf(format, args...)} }
