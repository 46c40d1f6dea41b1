package virtualmachineinstance

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	virtv1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-vm/slipway/controllers/eviction"
	"github.com/slipway-vm/slipway/controllers/virtualmachineinstance/pod"
	"github.com/slipway-vm/slipway/internal/names"
	"github.com/slipway-vm/slipway/internal/namespace"
)

// guard keeps a disruption budget for the pod of a guest that is not to end with an eviction of it,
// and takes it away when that changes or the guest has ended. It is no step: a guest starts without it.
func (r *Reconciler) guard(ctx context.Context, s *scope) error {
	noteEvacuation(s)
	if s.pod == nil && !s.vmi.IsFinal() {
		return nil
	}
	strategy, err := eviction.Strategy(ctx, r.Client, s.vmi)
	if err != nil {
		return err
	}
	budget := pod.Budget(s.vmi)
	existing := &policyv1.PodDisruptionBudget{}
	err = r.Get(ctx, client.ObjectKeyFromObject(budget), existing)
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("reading the disruption budget of %s/%s: %w", s.vmi.Namespace, s.vmi.Name, err)
	}
	missing, wanted := err != nil, !s.vmi.IsFinal() && eviction.Keeps(strategy, s.vmi)
	switch {
	case missing && wanted:
		err = r.Create(ctx, budget, client.FieldOwner(names.ManagerController))
		if apierrors.IsAlreadyExists(err) || namespace.Ending(err) {
			return nil
		}
	case !missing && !wanted:
		err = client.IgnoreNotFound(r.Delete(ctx, existing, client.Preconditions{UID: &existing.UID}))
	default:
		return nil
	}
	if err != nil {
		return fmt.Errorf("bringing the disruption budget of %s/%s to its eviction strategy: %w", s.vmi.Namespace, s.vmi.Name, err)
	}
	return nil
}

// noteEvacuation says that somebody evicted the guest's pod, for who is to move it.
func noteEvacuation(s *scope) {
	from := s.vmi.Status.EvacuationNodeName
	if from == "" || s.vmi.IsFinal() {
		s.dropCondition(conditionEvictionRequested)
		return
	}
	s.setCondition(conditionEvictionRequested, corev1.ConditionTrue, virtv1.VirtualMachineInstanceReasonEvictionRequested,
		fmt.Sprintf("the guest is to leave node %s; stop it when it may go", from))
}

// saysNoStrategy says whether the KubeVirt object decides about an eviction of vmi.
func saysNoStrategy(vmi *virtv1.VirtualMachineInstance) bool {
	return vmi.Spec.EvictionStrategy == nil && !vmi.IsFinal()
}
