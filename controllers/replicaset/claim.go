package replicaset

import (
	"context"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	virtv1 "kubevirt.io/api/core/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/slipway-vm/slipway/internal/names"
)

// release lets instances go whose labels the selector does not match any more. They run on.
func (r *Reconciler) release(ctx context.Context, s *scope) error {
	for _, vmi := range s.plan.release {
		owners := slices.DeleteFunc(slices.Clone(vmi.OwnerReferences), func(owner metav1.OwnerReference) bool { return owner.UID == s.set.UID })
		if err := r.setOwners(ctx, vmi, owners); client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("releasing VirtualMachineInstance %s/%s: %w", vmi.Namespace, vmi.Name, err)
		}
	}
	return nil
}

// adopt makes instances of nobody the set's own. One that has gone meanwhile is replaced
// when the cache shows that it went.
func (r *Reconciler) adopt(ctx context.Context, s *scope) error {
	for _, vmi := range s.plan.adopt {
		err := r.setOwners(ctx, vmi, append(slices.Clone(vmi.OwnerReferences), ownedBy(s.set)))
		if apierrors.IsNotFound(err) {
			s.forget(vmi)
			continue
		}
		if err != nil {
			return fmt.Errorf("adopting VirtualMachineInstance %s/%s: %w", vmi.Namespace, vmi.Name, err)
		}
	}
	return nil
}

// setOwners changes the owners of an instance that is still as it was read.
func (r *Reconciler) setOwners(ctx context.Context, vmi *virtv1.VirtualMachineInstance, owners []metav1.OwnerReference) error {
	changed := vmi.DeepCopy()
	changed.OwnerReferences = owners
	patch := client.MergeFromWithOptions(vmi, client.MergeFromWithOptimisticLock{})
	if err := r.Patch(ctx, changed, patch, client.FieldOwner(names.ManagerController)); err != nil {
		return fmt.Errorf("patching its owners: %w", err)
	}
	return nil
}

// setsFor are the replica sets that may take on an instance of nobody.
func (r *Reconciler) setsFor(ctx context.Context, object client.Object) []ctrl.Request {
	if metav1.GetControllerOf(object) != nil {
		return nil
	}
	list := &virtv1.VirtualMachineInstanceReplicaSetList{}
	if err := r.List(ctx, list, client.InNamespace(object.GetNamespace()), client.UnsafeDisableDeepCopy); err != nil {
		log.FromContext(ctx).Error(err, "Listing the replica sets that an instance may belong to", "VirtualMachineInstance", client.ObjectKeyFromObject(object))
		return nil
	}
	var requests []ctrl.Request
	for i := range list.Items {
		selector, err := metav1.LabelSelectorAsSelector(list.Items[i].Spec.Selector)
		if err == nil && selector.Matches(labels.Set(object.GetLabels())) {
			requests = append(requests, ctrl.Request{NamespacedName: client.ObjectKeyFromObject(&list.Items[i])})
		}
	}
	return requests
}
