package hostpathprovisioner

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	hppv1beta1 "github.com/slipway-vm/slipway/internal/api/hostpathprovisioner/v1beta1"
	"github.com/slipway-vm/slipway/internal/names"
)

// annotationSelectedNode names the node that was chosen for a claim whose class waits for that.
const annotationSelectedNode = "volume.kubernetes.io/selected-node"

// legacyClaimReconciler chooses the node for claims of the legacy provisioner that name one, where their class has
// claims wait for the scheduler's choice: as with the former program, they need no pod to be provisioned.
type legacyClaimReconciler struct{ client.Client }

func setupLegacyClaims(mgr ctrl.Manager) error {
	r := &legacyClaimReconciler{mgr.GetClient()}
	all := handler.EnqueueRequestsFromMapFunc(r.all)
	err := ctrl.NewControllerManagedBy(mgr).Named("hostpath-legacy-claim").
		For(&corev1.PersistentVolumeClaim{}, builder.WithPredicates(predicate.NewPredicateFuncs(namesNode))).
		Watches(&hppv1beta1.HostPathProvisioner{}, all, builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		Watches(&storagev1.StorageClass{}, all, builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		Complete(r)
	if err != nil {
		return fmt.Errorf("setting up the controller of the legacy provisioner's claims: %w", err)
	}
	return nil
}

func namesNode(object client.Object) bool {
	return object.GetAnnotations()[names.AnnotationProvisionOnNode] != ""
}

// all requests every claim that names a node: whether it is one of the provisioner's may have changed.
func (r *legacyClaimReconciler) all(ctx context.Context, _ client.Object) []reconcile.Request {
	var claims corev1.PersistentVolumeClaimList
	if err := r.List(ctx, &claims); err != nil {
		log.FromContext(ctx).Error(err, "Listing claims failed")
		return nil
	}
	var requests []reconcile.Request
	for i := range claims.Items {
		if namesNode(&claims.Items[i]) {
			requests = append(requests, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&claims.Items[i])})
		}
	}
	return requests
}

// Reconcile chooses the node that the claim names, once.
func (r *legacyClaimReconciler) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	claim := &corev1.PersistentVolumeClaim{}
	if err := r.Get(ctx, request.NamespacedName, claim); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err) //nolint:wrapcheck // the request names it
	}
	if !namesNode(claim) || claim.DeletionTimestamp != nil || claim.Spec.VolumeName != "" || claim.Annotations[annotationSelectedNode] != "" {
		return ctrl.Result{}, nil
	}
	waits, err := r.waits(ctx, claim)
	if err != nil || !waits {
		return ctrl.Result{}, err
	}
	chosen := claim.DeepCopy()
	chosen.Annotations[annotationSelectedNode] = claim.Annotations[names.AnnotationProvisionOnNode]
	patch := client.MergeFromWithOptions(claim, client.MergeFromWithOptimisticLock{})
	if err := r.Patch(ctx, chosen, patch, client.FieldOwner(names.ManagerController)); client.IgnoreNotFound(err) != nil {
		return ctrl.Result{}, fmt.Errorf("choosing the node of claim %s: %w", request.NamespacedName, err)
	}
	return ctrl.Result{}, nil
}

// waits tells whether a claim is one of the legacy provisioner, where that is Slipway's, and waits for a node.
func (r *legacyClaimReconciler) waits(ctx context.Context, claim *corev1.PersistentVolumeClaim) (bool, error) {
	name := ptr.Deref(claim.Spec.StorageClassName, "")
	if name == "" {
		return false, nil
	}
	class := &storagev1.StorageClass{}
	if err := r.Get(ctx, client.ObjectKey{Name: name}, class); err != nil {
		if client.IgnoreNotFound(err) == nil {
			return false, nil
		}
		return false, fmt.Errorf("reading storage class %s: %w", name, err)
	}
	if class.Provisioner != names.LegacyHostPathDriver || ptr.Deref(class.VolumeBindingMode, storagev1.VolumeBindingImmediate) != storagev1.VolumeBindingWaitForFirstConsumer {
		return false, nil
	}
	var objects hppv1beta1.HostPathProvisionerList
	if err := r.List(ctx, &objects); err != nil {
		return false, fmt.Errorf("listing HostPathProvisioner objects: %w", err)
	}
	active := hppv1beta1.Active(objects.Items)
	return active != nil && active.Spec.PathConfig != nil, nil
}
