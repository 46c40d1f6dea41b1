package pool

import (
	"context"
	"reflect"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	poolv1 "kubevirt.io/api/pool/v1beta1"

	"github.com/slipway-vm/slipway/internal/apply"
	"github.com/slipway-vm/slipway/internal/names"
)

// writeStatus writes the pool's status when it has changed, and tells when the pool has
// stopped or begun to keep its number.
func (r *Reconciler) writeStatus(ctx context.Context, s *scope) error {
	wanted := statusOf(s)
	if reflect.DeepEqual(wanted, s.pool.Status) {
		return nil
	}
	err := apply.Status(ctx, r.Client, s.pool, names.ManagerController, wanted)
	if apierrors.IsNotFound(err) {
		return nil // gone since it was read
	}
	if err != nil {
		return err
	}
	was := find(s.pool.Status.Conditions, poolv1.VirtualMachinePoolReplicaPaused) != nil
	switch {
	case s.pool.Spec.Paused && !was:
		r.normal(s.pool, reasonPause, "Pool is paused")
	case !s.pool.Spec.Paused && was:
		r.normal(s.pool, reasonResume, "Pool is unpaused")
	}
	return nil
}

// statusOf computes the pool's status from what the pass knows.
func statusOf(s *scope) poolv1.VirtualMachinePoolStatus {
	status := poolv1.VirtualMachinePoolStatus{
		Replicas:      int32(len(s.members)), //nolint:gosec // as many as a namespace holds
		LabelSelector: s.selector.String(),
		Conditions:    conditions(s),
	}
	for _, vm := range s.members {
		if vm.Status.Ready {
			status.ReadyReplicas++
		}
	}
	return status
}

const messagePaused = "no virtual machine is created, deleted or updated while spec.paused is true"

// conditions are there while they hold, as clients of the field expect.
func conditions(s *scope) []poolv1.VirtualMachinePoolCondition {
	var all []poolv1.VirtualMachinePoolCondition
	add := func(kind poolv1.VirtualMachinePoolConditionType, reason, message string) {
		c := poolv1.VirtualMachinePoolCondition{Type: kind, Status: corev1.ConditionTrue, Reason: reason, Message: message}
		if old := find(s.pool.Status.Conditions, kind); old != nil && old.Status == c.Status {
			c.LastTransitionTime = old.LastTransitionTime
		} else {
			c.LastTransitionTime = metav1.NewTime(s.now)
		}
		all = append(all, c)
	}
	if s.pool.Spec.Paused {
		add(poolv1.VirtualMachinePoolReplicaPaused, reasonPause, messagePaused)
	}
	if s.failure != nil && !apierrors.IsConflict(s.failure) {
		add(poolv1.VirtualMachinePoolReplicaFailure, s.reason, s.failure.Error())
	}
	return all
}

func find(all []poolv1.VirtualMachinePoolCondition, kind poolv1.VirtualMachinePoolConditionType) *poolv1.VirtualMachinePoolCondition {
	for i := range all {
		if all[i].Type == kind {
			return &all[i]
		}
	}
	return nil
}
