package pool

import (
	"context"
	"errors"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	virtv1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/slipway-vm/slipway/internal/names"
	"github.com/slipway-vm/slipway/internal/namespace"
)

// burst is how many VMs a pass makes or deletes at the most. The next pass, which their
// own events bring, goes on, and the status is written in between.
const burst = 250

// release lets VMs go whose labels the selector does not match any more. They run on.
func (r *Reconciler) release(ctx context.Context, s *scope) error {
	for _, vm := range s.plan.release {
		changed := vm.DeepCopy()
		controllerutil.RemoveFinalizer(changed, finalizer)
		changed.OwnerReferences = slices.DeleteFunc(changed.OwnerReferences, func(owner metav1.OwnerReference) bool { return owner.UID == s.pool.UID })
		if err := r.patch(ctx, changed, vm); client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("releasing VirtualMachine %s/%s: %w", vm.Namespace, vm.Name, err)
		}
	}
	return nil
}

// patch changes a VM that is still as it was read.
func (r *Reconciler) patch(ctx context.Context, changed, from *virtv1.VirtualMachine) error {
	patch := client.MergeFromWithOptions(from, client.MergeFromWithOptimisticLock{})
	if err := r.Patch(ctx, changed, patch, client.FieldOwner(names.ManagerController)); err != nil {
		return fmt.Errorf("patching VirtualMachine %s/%s: %w", from.Namespace, from.Name, err)
	}
	return nil
}

// create makes the VMs that are missing, with the lowest ordinals that are free. The first
// that is refused ends the pass: what refuses one, such as a quota, refuses them all.
func (r *Reconciler) create(ctx context.Context, s *scope) error {
	if s.plan.create == 0 {
		return nil
	}
	err := checkTemplate(s.pool, s.selector)
	if err == nil {
		err = r.revise(ctx, s)
	}
	ordinal := 0
	for made := 0; err == nil && made < min(s.plan.create, burst); ordinal++ {
		if slices.ContainsFunc(s.plan.members, func(vm *virtv1.VirtualMachine) bool { return vm.Name == nameOf(s.pool, ordinal) }) {
			continue
		}
		vm := machine(s.pool, ordinal, s.revision, s.plan.digest)
		var going bool
		if going, err = r.disksGoing(ctx, vm); err != nil || going {
			made++ // its place is kept; the end of the disks brings another pass
			continue
		}
		err = r.Create(ctx, vm, client.FieldOwner(names.ManagerController))
		if apierrors.IsAlreadyExists(err) {
			err = nil // the name is another's: somebody made it, or it was let go
			continue
		}
		if err == nil {
			made++
			s.members = append(s.members, vm)
			r.normal(s.pool, reasonCreate, "Created VM %s/%s", vm.Namespace, vm.Name)
		}
	}
	if namespace.Ending(err) {
		return nil // the pool is deleted next
	}
	if err != nil {
		r.warning(s.pool, reasonCreateFailed, "Error creating VM: %v", err)
		return s.fail(reasonScaleOutFailed, fmt.Errorf("making a VirtualMachine of VirtualMachinePool %s/%s: %w", s.pool.Namespace, s.pool.Name, err))
	}
	return nil
}

// remove deletes the VMs that are too much, with or without their disks.
func (r *Reconciler) remove(ctx context.Context, s *scope) error {
	var errs []error
	for _, vm := range s.plan.remove[:min(len(s.plan.remove), burst)] {
		if preserves(s.pool) {
			if err := r.keepDisks(ctx, vm); err != nil {
				errs = append(errs, err)
				continue
			}
		}
		errs = append(errs, r.delete(ctx, s, vm))
	}
	if err := errors.Join(errs...); err != nil {
		return s.fail(reasonScaleInFailed, err)
	}
	return nil
}

// delete deletes a VM, which is there until all that it owns is gone: the next of its name
// would else take a disk for its own that is about to go.
func (r *Reconciler) delete(ctx context.Context, s *scope, vm *virtv1.VirtualMachine) error {
	err := r.Delete(ctx, vm, client.Preconditions{UID: &vm.UID}, client.PropagationPolicy(metav1.DeletePropagationForeground))
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		r.warning(s.pool, reasonDeleteFailed, "Error deleting virtual machine %s/%s: %v", vm.Namespace, vm.Name, err)
		return fmt.Errorf("deleting VirtualMachine %s/%s: %w", vm.Namespace, vm.Name, err)
	}
	r.normal(s.pool, reasonDelete, "Deleted VM %s/%s with uid %v from pool", vm.Namespace, vm.Name, vm.UID)
	return nil
}
