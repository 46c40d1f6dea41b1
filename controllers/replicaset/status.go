package replicaset

import (
	"context"
	"reflect"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	virtv1 "kubevirt.io/api/core/v1"

	"github.com/slipway-vm/slipway/internal/apply"
	"github.com/slipway-vm/slipway/internal/names"
)

// writeStatus writes the set's status when it has changed, and tells when the set has
// stopped or begun to keep its number.
func (r *Reconciler) writeStatus(ctx context.Context, s *scope) error {
	wanted := statusOf(s)
	if reflect.DeepEqual(wanted, s.set.Status) {
		return nil
	}
	err := apply.Status(ctx, r.Client, s.set, names.ManagerController, wanted)
	if apierrors.IsNotFound(err) {
		return nil // gone since it was read
	}
	if err != nil {
		return err
	}
	was := find(s.set.Status.Conditions, virtv1.VirtualMachineInstanceReplicaSetReplicaPaused) != nil
	switch {
	case s.set.Spec.Paused && !was:
		r.normal(s.set, reasonPause, "Paused")
	case !s.set.Spec.Paused && was:
		r.normal(s.set, reasonResume, "Resumed")
	}
	return nil
}

// statusOf computes the set's status from what the pass knows.
func statusOf(s *scope) virtv1.VirtualMachineInstanceReplicaSetStatus {
	status := virtv1.VirtualMachineInstanceReplicaSetStatus{
		Replicas:      int32(len(s.active)), //nolint:gosec // as many as a namespace holds
		LabelSelector: s.selector.String(),
		Conditions:    conditions(s),
	}
	for _, vmi := range s.active {
		if ready(vmi) {
			status.ReadyReplicas++
		}
	}
	return status
}

const messagePaused = "no virtual machine instance is created, deleted or replaced while spec.paused is true"

// conditions are there while they hold, as clients of the field expect.
func conditions(s *scope) []virtv1.VirtualMachineInstanceReplicaSetCondition {
	var all []virtv1.VirtualMachineInstanceReplicaSetCondition
	add := func(kind virtv1.VirtualMachineInstanceReplicaSetConditionType, reason, message string) {
		c := virtv1.VirtualMachineInstanceReplicaSetCondition{Type: kind, Status: corev1.ConditionTrue, Reason: reason, Message: message}
		if old := find(s.set.Status.Conditions, kind); old != nil && old.Status == c.Status {
			c.LastTransitionTime = old.LastTransitionTime
		} else {
			c.LastTransitionTime = metav1.NewTime(s.now)
		}
		all = append(all, c)
	}
	if s.set.Spec.Paused {
		add(virtv1.VirtualMachineInstanceReplicaSetReplicaPaused, reasonPaused, messagePaused)
	}
	if s.failure != nil {
		add(virtv1.VirtualMachineInstanceReplicaSetReplicaFailure, s.reason, s.failure.Error())
	}
	return all
}

func find(all []virtv1.VirtualMachineInstanceReplicaSetCondition, kind virtv1.VirtualMachineInstanceReplicaSetConditionType) *virtv1.VirtualMachineInstanceReplicaSetCondition {
	for i := range all {
		if all[i].Type == kind {
			return &all[i]
		}
	}
	return nil
}
