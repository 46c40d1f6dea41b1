package hostpathprovisioner

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	hppv1beta1 "github.com/slipway-vm/slipway/internal/api/hostpathprovisioner/v1beta1"
	"github.com/slipway-vm/slipway/internal/apply"
	"github.com/slipway-vm/slipway/internal/names"
)

// Reasons of the conditions.
const (
	// ReasonReady: every pool has its StorageClass, and its claims are mounted where it lies on claims.
	ReasonReady = "PoolsReady"
	// ReasonConflict: an object of that name is somebody else's.
	ReasonConflict = "Conflict"
	// ReasonAnother: another HostPathProvisioner counts.
	ReasonAnother = "AnotherExists"
	// ReasonVolumes: the object is being deleted, or a pool is no longer asked for, and volumes or snapshots are left.
	ReasonVolumes = "VolumesExist"
	// ReasonClaims: a claim that a pool lies on is not mounted on its node yet.
	ReasonClaims = "ClaimsNotMounted"
	// ReasonLost: a claim that a pool lies on is gone, or goes, or lost its volume.
	ReasonLost = "ClaimLost"
)

// updateStatus writes what the pass found, if it says anything new.
func (r *Reconciler) updateStatus(ctx context.Context, s *scope) error {
	if s.ending() {
		return nil // it is gone
	}
	status := status(s, r.options.Version)
	if equality.Semantic.DeepEqual(status, s.object.Status) {
		return nil
	}
	err := apply.Status(ctx, r.Client, s.object, names.ManagerController, status)
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil // deleted meanwhile
	}
	return err
}

// status is computed from what the pass found alone; times of conditions that stay are kept.
func status(s *scope, version string) hppv1beta1.HostPathProvisionerStatus {
	status := hppv1beta1.HostPathProvisionerStatus{
		Conditions:      s.object.DeepCopy().Status.Conditions,
		OperatorVersion: version, TargetVersion: version, ObservedVersion: version,
	}
	s.awaitClaims()
	phase := hppv1beta1.StoragePoolReady
	available, progressing, degraded := metav1.ConditionTrue, metav1.ConditionFalse, metav1.ConditionFalse
	reason, message := ReasonReady, fmt.Sprintf("%d storage pools have their StorageClass", len(s.object.Spec.Pools()))
	switch {
	case s.reason != "":
		available, degraded, phase = metav1.ConditionFalse, metav1.ConditionTrue, hppv1beta1.StoragePoolPreparing
		reason, message = s.reason, s.message
	case s.volumes > 0:
		available, progressing, phase = metav1.ConditionFalse, metav1.ConditionTrue, hppv1beta1.StoragePoolPreparing
		reason = ReasonVolumes
		message = fmt.Sprintf("%d volumes are left, such as %s: delete their claims; the pools stay known until then", s.volumes, s.example)
	case s.snapshots > 0:
		available, progressing, phase = metav1.ConditionFalse, metav1.ConditionTrue, hppv1beta1.StoragePoolPreparing
		reason = ReasonVolumes
		message = fmt.Sprintf("%d snapshots are left, such as VolumeSnapshotContent %s: delete their VolumeSnapshots, and contents that are kept", s.snapshots, s.example)
	case s.waitReason != "":
		progressing, reason, message = metav1.ConditionTrue, s.waitReason, s.waiting
	}
	for _, condition := range []metav1.Condition{
		{Type: hppv1beta1.ConditionAvailable, Status: available},
		{Type: hppv1beta1.ConditionProgressing, Status: progressing},
		{Type: hppv1beta1.ConditionDegraded, Status: degraded},
	} {
		condition.Reason, condition.Message, condition.ObservedGeneration = reason, message, s.object.Generation
		meta.SetStatusCondition(&status.Conditions, condition)
	}
	for _, pool := range s.object.Spec.Pools() {
		status.StoragePoolStatuses = append(status.StoragePoolStatuses, poolStatus(pool, s.claims[pool.Name], phase))
	}
	for _, name := range s.recalled {
		status.StoragePoolStatuses = append(status.StoragePoolStatuses, hppv1beta1.StoragePoolStatus{Name: name, Phase: hppv1beta1.StoragePoolPreparing})
	}
	return status
}

// poolStatus is a pool's, when phase is that of all.
func poolStatus(pool hppv1beta1.StoragePool, on claims, phase hppv1beta1.StoragePoolPhase) hppv1beta1.StoragePoolStatus {
	if pool.PVCTemplate != nil && on.ready < on.desired {
		phase = hppv1beta1.StoragePoolPreparing
	}
	return hppv1beta1.StoragePoolStatus{
		Name: pool.Name, Phase: phase, DesiredReady: on.desired, CurrentReady: on.ready, ClaimStatuses: on.statuses,
	}
}

// awaitClaims says which claim is waited for, of the first pool that has such a one.
func (s *scope) awaitClaims() {
	for _, pool := range s.object.Spec.StoragePools {
		if on := s.claims[pool.Name]; on.ready < on.desired {
			s.wait(ReasonClaims, fmt.Sprintf("storage pool %s has its claims on %d of %d nodes: %s", pool.Name, on.ready, on.desired, on.waits))
		}
	}
}
