package pool

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	virtv1 "kubevirt.io/api/core/v1"
	poolv1 "kubevirt.io/api/pool/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/slipway-vm/slipway/internal/names"
)

// A pool that is to keep the disks of VMs that its user deletes holds its VMs by a finalizer: what they own is collected
// when they are gone, and they are not before the disks are nobody's. It has the finalizer itself, so that no VM is held by a pool that is gone.

const finalizer = poolv1.VirtualMachinePoolControllerFinalizer

// holds says whether the pool keeps the disks of VMs that others delete. Those of one that is deleted go with their VMs.
func holds(pool *poolv1.VirtualMachinePool) bool {
	strategy := pool.Spec.ScaleInStrategy
	return pool.DeletionTimestamp == nil && strategy != nil && strategy.Opportunistic != nil && keepsDisks(strategy.Opportunistic.StatePreservation)
}

// planHold plans what is done about the finalizer of vm, which is one of pool's.
func (p *plan) planHold(pool *poolv1.VirtualMachinePool, vm *virtv1.VirtualMachine) {
	held := controllerutil.ContainsFinalizer(vm, finalizer)
	switch {
	case !holds(pool):
		if held {
			p.loosen = append(p.loosen, vm)
		}
	case vm.DeletionTimestamp == nil && !held:
		p.hold = append(p.hold, vm)
	case vm.DeletionTimestamp != nil && held:
		p.keep = append(p.keep, vm)
	}
}

// leftHeld says whether vm was pool's and is nobody's now, with the finalizer: a pool that is deleted may leave its VMs.
func leftHeld(pool *poolv1.VirtualMachinePool, vm *virtv1.VirtualMachine) bool {
	_, named := ordinalOf(pool, vm.Name)
	return named && metav1.GetControllerOf(vm) == nil && controllerutil.ContainsFinalizer(vm, finalizer)
}

// guard gives the pool the finalizer before any VM gets it.
func (r *Reconciler) guard(ctx context.Context, s *scope) error {
	if !s.plan.guard {
		return nil
	}
	changed := s.pool.DeepCopy()
	controllerutil.AddFinalizer(changed, finalizer)
	if err := r.patchPool(ctx, changed, s.pool); err != nil {
		return err
	}
	s.pool = changed
	return nil
}

// hold gives VMs the finalizer. They are changed further in the same pass.
func (r *Reconciler) hold(ctx context.Context, s *scope) error {
	for _, vm := range s.plan.hold {
		changed := vm.DeepCopy()
		controllerutil.AddFinalizer(changed, finalizer)
		if err := r.patch(ctx, changed, vm); client.IgnoreNotFound(err) != nil {
			return err
		}
		vm.Finalizers, vm.ResourceVersion = changed.Finalizers, changed.ResourceVersion
	}
	return nil
}

// letGo takes the finalizer from VMs: from those that somebody deleted once their disks are nobody's, and from those that are not held any more.
func (r *Reconciler) letGo(ctx context.Context, s *scope) error {
	for _, vm := range s.plan.keep {
		if err := r.keepDisks(ctx, vm); err != nil {
			return s.fail(reasonScaleInFailed, err)
		}
		if err := r.loosen(ctx, vm); err != nil {
			return s.fail(reasonScaleInFailed, err)
		}
	}
	for _, vm := range s.plan.loosen {
		if err := r.loosen(ctx, vm); err != nil {
			return err
		}
	}
	return nil
}

// loosen takes the finalizer from vm, where it has it.
func (r *Reconciler) loosen(ctx context.Context, vm *virtv1.VirtualMachine) error {
	if !controllerutil.ContainsFinalizer(vm, finalizer) {
		return nil
	}
	changed := vm.DeepCopy()
	controllerutil.RemoveFinalizer(changed, finalizer)
	if err := r.patch(ctx, changed, vm); client.IgnoreNotFound(err) != nil {
		return err
	}
	return nil
}

// leave lets a deleted pool go, which holds no VM any more.
func (r *Reconciler) leave(ctx context.Context, s *scope) error {
	if !s.plan.leave {
		return nil
	}
	changed := s.pool.DeepCopy()
	controllerutil.RemoveFinalizer(changed, finalizer)
	if err := r.patchPool(ctx, changed, s.pool); err != nil && !apierrors.IsNotFound(err) {
		return err
	}
	s.gone = true
	return nil
}

// patchPool changes a pool that is still as it was read.
func (r *Reconciler) patchPool(ctx context.Context, changed, from *poolv1.VirtualMachinePool) error {
	patch := client.MergeFromWithOptions(from, client.MergeFromWithOptimisticLock{})
	if err := r.Patch(ctx, changed, patch, client.FieldOwner(names.ManagerController)); err != nil {
		return fmt.Errorf("changing the finalizers of VirtualMachinePool %s/%s: %w", from.Namespace, from.Name, err)
	}
	return nil
}
