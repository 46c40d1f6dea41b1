package virtualmachineinstance

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	virtv1 "kubevirt.io/api/core/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/slipway-vm/slipway/controllers/node"
	"github.com/slipway-vm/slipway/internal/population"
)

// claimIndex finds VMIs by the names of the claims that they use, podIndex pods by the UID of
// what controls them.
const (
	claimIndex = "spec.volumes.claim"
	podIndex   = "metadata.ownerReferences.controller"
)

func index(ctx context.Context, mgr ctrl.Manager) error {
	if err := mgr.GetFieldIndexer().IndexField(ctx, &corev1.Pod{}, podIndex, controllerOf); err != nil {
		return fmt.Errorf("indexing pods by controller: %w", err)
	}
	err := mgr.GetFieldIndexer().IndexField(ctx, &virtv1.VirtualMachineInstance{}, claimIndex, func(obj client.Object) []string {
		vmi, ok := obj.(*virtv1.VirtualMachineInstance)
		if !ok {
			return nil
		}
		var names []string
		for _, volume := range volumesOf(vmi) {
			if claim, _ := lateClaimOf(volume); claim != "" {
				names = append(names, claim)
			}
		}
		return names
	})
	if err != nil {
		return fmt.Errorf("indexing VirtualMachineInstances by claim: %w", err)
	}
	return nil
}

// controllerOf is the UID of what controls obj.
func controllerOf(obj client.Object) []string {
	if owner := metav1.GetControllerOfNoCopy(obj); owner != nil {
		return []string{string(owner.UID)}
	}
	return nil
}

// usersOfClaim are the VMIs that may wait for the claim or DataVolume obj.
func (r *Reconciler) usersOfClaim(ctx context.Context, obj client.Object) []reconcile.Request {
	name := obj.GetName()
	if filled := obj.GetAnnotations()[population.AnnotationFills]; filled != "" {
		name = filled
	}
	users := r.requests(ctx, waitsForVolume, client.InNamespace(obj.GetNamespace()), client.MatchingFields{claimIndex: name})
	return append(users, stateUsers(obj)...)
}

// waitingForNode are the VMIs whose pod has no node yet.
func (r *Reconciler) waitingForNode(ctx context.Context, _ client.Object) []reconcile.Request {
	return r.requests(ctx, unplaced)
}

// affectedByKubeVirt are the VMIs whose pod has no node yet, and those that leave to the KubeVirt
// object what becomes of them when their pod is evicted.
func (r *Reconciler) affectedByKubeVirt(ctx context.Context, _ client.Object) []reconcile.Request {
	return r.requests(ctx, func(vmi *virtv1.VirtualMachineInstance) bool { return unplaced(vmi) || saysNoStrategy(vmi) })
}

// affectedByNode are the VMIs on a node that is lost or not ready, and those without one.
func (r *Reconciler) affectedByNode(ctx context.Context, obj client.Object) []reconcile.Request {
	waiting := r.waitingForNode(ctx, obj)
	n := &corev1.Node{}
	err := r.Get(ctx, client.ObjectKeyFromObject(obj), n)
	if err == nil && node.Ready(n) {
		return waiting
	}
	if client.IgnoreNotFound(err) != nil {
		log.FromContext(ctx).Error(err, "Reading a node failed", "Node", obj.GetName())
	}
	return append(waiting, r.requests(ctx, every, client.MatchingLabels{virtv1.NodeNameLabel: obj.GetName()})...)
}

func unplaced(vmi *virtv1.VirtualMachineInstance) bool {
	return vmi.Status.Phase == virtv1.Scheduling && vmi.Status.NodeName == "" && vmi.DeletionTimestamp == nil
}

func every(*virtv1.VirtualMachineInstance) bool { return true }

// requests lists the VMIs that options select and keep approves, from the cache.
func (r *Reconciler) requests(ctx context.Context, keep func(*virtv1.VirtualMachineInstance) bool, options ...client.ListOption) []reconcile.Request {
	list := &virtv1.VirtualMachineInstanceList{}
	if err := r.List(ctx, list, append(options, client.UnsafeDisableDeepCopy)...); err != nil {
		log.FromContext(ctx).Error(err, "Listing VirtualMachineInstances failed")
		return nil
	}
	var found []reconcile.Request
	for i := range list.Items {
		if keep(&list.Items[i]) {
			found = append(found, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&list.Items[i])})
		}
	}
	return found
}
