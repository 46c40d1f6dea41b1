package populator

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/slipway-vm/slipway/internal/population"
	"github.com/slipway-vm/slipway/internal/steps"
)

// Reconciler brings claims with a source to be whole and bound.
type Reconciler struct {
	client.Client
	// live reads past the cache: what a write depends on, and volumes, which are not cached.
	live   client.Reader
	events events.EventRecorder
	told   ledger
	now    func() time.Time
}

// SetupWithManager adds the controller to mgr.
func SetupWithManager(mgr ctrl.Manager) error {
	r := &Reconciler{Client: mgr.GetClient(), live: mgr.GetAPIReader(), events: mgr.GetEventRecorder("populator-controller"), now: time.Now}
	err := ctrl.NewControllerManagedBy(mgr).
		Named(controllerName).
		Watches(&corev1.PersistentVolumeClaim{}, handler.EnqueueRequestsFromMapFunc(populated)).
		Watches(&cdiv1.DataVolume{}, handler.EnqueueRequestsFromMapFunc(controllingClaim)).
		Watches(&cdiv1.VolumeImportSource{}, handler.EnqueueRequestsFromMapFunc(r.usersOf(cdiv1.VolumeImportSourceRef))).
		Watches(&cdiv1.VolumeUploadSource{}, handler.EnqueueRequestsFromMapFunc(r.usersOf(cdiv1.VolumeUploadSourceRef))).
		Watches(&cdiv1.VolumeCloneSource{}, handler.EnqueueRequestsFromMapFunc(r.usersOf(cdiv1.VolumeCloneSourceRef))).
		Watches(&storagev1.StorageClass{}, handler.EnqueueRequestsFromMapFunc(r.waitingFor)).
		Watches(&storagev1.CSIDriver{}, handler.EnqueueRequestsFromMapFunc(r.waitingForDriver)).
		Complete(r)
	if err != nil {
		return fmt.Errorf("setting up the controller of populators: %w", err)
	}
	return nil
}

// steps are done in this order in every pass, until one ends it: what has ended is cleared away
// first; a volume is handed over last, when its disk is whole.
func (r *Reconciler) steps() []func(context.Context, *scope) error {
	return []func(context.Context, *scope) error{
		r.release,
		r.passOver,
		r.finish,
		r.awaitBinding,
		r.refuse,
		r.reconsider,
		r.choose,
		r.ensurePrime,
		r.handOver,
	}
}

// Reconcile makes one pass over the claim that req names.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	claim := &corev1.PersistentVolumeClaim{}
	if err := r.Get(ctx, req.NamespacedName, claim); apierrors.IsNotFound(err) {
		r.told.forget(req.NamespacedName)
		return ctrl.Result{}, nil // what was made for it goes by its owner references
	} else if err != nil {
		return ctrl.Result{}, fmt.Errorf("reading claim %s: %w", req.NamespacedName, err)
	}
	if population.Source(claim) == "" || population.Withdrawn(claim) {
		return r.withdraw(ctx, claim)
	}
	if another, err := r.ofDataVolume(ctx, claim); err != nil || another {
		return ctrl.Result{}, err
	}
	s, err := r.read(ctx, claim)
	if err != nil {
		return ctrl.Result{}, err
	}
	failure := steps.Run(ctx, s, r.steps())
	if errors.Is(failure, errStale) {
		return ctrl.Result{RequeueAfter: staleRetry}, nil
	}
	failure = errors.Join(failure, r.writeNotes(ctx, s))
	if apierrors.IsConflict(failure) {
		log.FromContext(ctx).V(1).Info("Retrying, the cache lags behind", "cause", failure.Error())
		return ctrl.Result{RequeueAfter: staleRetry}, nil
	}
	return s.result, failure
}

// populated requests a claim that has a source, or had one until now.
func populated(_ context.Context, object client.Object) []reconcile.Request {
	if claim, ok := object.(*corev1.PersistentVolumeClaim); ok && population.Source(claim) != "" {
		return []reconcile.Request{{NamespacedName: client.ObjectKeyFromObject(claim)}}
	}
	return nil
}

// controllingClaim requests the claim that a DataVolume is made for.
func controllingClaim(_ context.Context, object client.Object) []reconcile.Request {
	by := metav1.GetControllerOf(object)
	if by == nil || by.Kind != kindClaim {
		return nil
	}
	return []reconcile.Request{{NamespacedName: client.ObjectKey{Namespace: object.GetNamespace(), Name: by.Name}}}
}

// usersOf requests the claims that name a source of kind and have no volume yet.
func (r *Reconciler) usersOf(kind string) handler.MapFunc {
	return func(ctx context.Context, source client.Object) []reconcile.Request {
		return r.unbound(ctx, source.GetNamespace(), func(claim *corev1.PersistentVolumeClaim) bool {
			return population.Source(claim) == kind && claim.Spec.DataSourceRef.Name == source.GetName()
		})
	}
}

// waitingFor requests the claims of a StorageClass that have no volume yet.
func (r *Reconciler) waitingFor(ctx context.Context, class client.Object) []reconcile.Request {
	return r.unbound(ctx, "", func(claim *corev1.PersistentVolumeClaim) bool {
		name := claim.Spec.StorageClassName
		return population.Source(claim) != "" && name != nil && *name == class.GetName()
	})
}

// waitingForDriver requests the claims of a CSI driver's classes that have no volume yet.
func (r *Reconciler) waitingForDriver(ctx context.Context, driver client.Object) []reconcile.Request {
	var classes storagev1.StorageClassList
	if err := r.List(ctx, &classes); err != nil {
		log.FromContext(ctx).Error(err, "Listing storage classes failed")
		return nil
	}
	its := map[string]bool{}
	for n := range classes.Items {
		its[classes.Items[n].Name] = classes.Items[n].Provisioner == driver.GetName()
	}
	return r.unbound(ctx, "", func(claim *corev1.PersistentVolumeClaim) bool {
		name := claim.Spec.StorageClassName
		return population.Source(claim) != "" && (claim.Annotations[annotationMigratedTo] == driver.GetName() || name != nil && its[*name])
	})
}

func (r *Reconciler) unbound(ctx context.Context, namespace string, concerned func(*corev1.PersistentVolumeClaim) bool) []reconcile.Request {
	var all corev1.PersistentVolumeClaimList
	if err := r.List(ctx, &all, client.InNamespace(namespace), client.UnsafeDisableDeepCopy); err != nil {
		log.FromContext(ctx).Error(err, "Listing claims failed")
		return nil
	}
	var requests []reconcile.Request
	for n := range all.Items {
		if claim := &all.Items[n]; claim.Spec.VolumeName == "" && concerned(claim) {
			requests = append(requests, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(claim)})
		}
	}
	return requests
}
