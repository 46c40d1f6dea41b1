package virtualmachinerestore

import (
	"context"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	snapshotv1 "kubevirt.io/api/snapshot/v1beta1"

	"github.com/slipway-vm/slipway/internal/apply"
	"github.com/slipway-vm/slipway/internal/names"
)

// writeStatus writes the restore's status when it has changed.
func (r *Reconciler) writeStatus(ctx context.Context, s *scope) error {
	if ended(s.restore) {
		return nil
	}
	wanted := newStatus(s)
	if s.restore.Status != nil && equality.Semantic.DeepEqual(wanted, *s.restore.Status) {
		return nil
	}
	err := apply.Status(ctx, r.Client, s.restore, names.ManagerController, wanted)
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err == nil {
		s.restore.Status = &wanted
	}
	return err
}

// newStatus computes the restore's status from what the pass knows.
func newStatus(s *scope) snapshotv1.VirtualMachineRestoreStatus {
	now := metav1.NewTime(s.now).Rfc3339Copy()
	wanted := snapshotv1.VirtualMachineRestoreStatus{Restores: s.restores, DeletedDataVolumes: s.obsolete, Complete: &s.done}
	var progressing, ready snapshotv1.Condition
	switch {
	case s.done:
		wanted.RestoreTime = &now
		progressing, ready = condition(snapshotv1.ConditionProgressing, false, complete), condition(snapshotv1.ConditionReady, true, complete)
	case s.failure != "":
		progressing, ready = condition(snapshotv1.ConditionProgressing, false, failed), condition(snapshotv1.ConditionReady, false, failed)
		wanted.Conditions = append(wanted.Conditions, condition(snapshotv1.ConditionFailure, true, s.failure))
	case s.problem != nil:
		progressing = condition(snapshotv1.ConditionProgressing, false, s.problem.message)
		ready = condition(snapshotv1.ConditionReady, false, s.problem.message)
	default:
		progressing = condition(snapshotv1.ConditionProgressing, s.progress != waitingForTarget, s.progress)
		ready = condition(snapshotv1.ConditionReady, false, s.waiting)
		if s.waiting == waitingForClaims {
			ready.Message = strings.Join(claimsOf(s.restores), ", ")
		}
	}
	wanted.Conditions = append(wanted.Conditions, progressing, ready)
	for i := range wanted.Conditions {
		c := &wanted.Conditions[i]
		c.LastTransitionTime = now
		for _, before := range status(s.restore).Conditions {
			if before.Type == c.Type && before.Status == c.Status {
				c.LastTransitionTime = before.LastTransitionTime
			}
		}
	}
	return wanted
}

func claimsOf(restores []snapshotv1.VolumeRestore) []string {
	var all []string
	for _, one := range restores {
		all = append(all, one.PersistentVolumeClaimName)
	}
	return all
}

func condition(kind snapshotv1.ConditionType, holds bool, reason string) snapshotv1.Condition {
	c := snapshotv1.Condition{Type: kind, Status: corev1.ConditionFalse, Reason: reason}
	if holds {
		c.Status = corev1.ConditionTrue
	}
	return c
}
