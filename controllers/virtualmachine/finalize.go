package virtualmachine

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	virtv1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/slipway-vm/slipway/internal/names"
)

// addFinalizer adds the finalizer that admission adds to every VM, in case it was made
// while no admission was installed.
func (r *Reconciler) addFinalizer(ctx context.Context, s *scope) error {
	if s.failure != nil {
		return s.failure
	}
	if controllerutil.ContainsFinalizer(s.vm, virtv1.VirtualMachineControllerFinalizer) {
		return nil
	}
	changed := s.vm.DeepCopy()
	controllerutil.AddFinalizer(changed, virtv1.VirtualMachineControllerFinalizer)
	if err := r.patch(ctx, changed, s.vm); err != nil {
		return fmt.Errorf("adding the finalizer to %s/%s: %w", s.vm.Namespace, s.vm.Name, err)
	}
	return nil
}

// patch writes changed, which was from; what the pass writes later is of the VM as it is then.
func (r *Reconciler) patch(ctx context.Context, changed, from *virtv1.VirtualMachine) error {
	patch := client.MergeFromWithOptions(from, client.MergeFromWithOptimisticLock{})
	if err := r.Patch(ctx, changed, patch, client.FieldOwner(names.ManagerController)); err != nil {
		return fmt.Errorf("patching VirtualMachine %s/%s: %w", from.Namespace, from.Name, err)
	}
	from.ResourceVersion = changed.ResourceVersion
	return nil
}

// readInstance reads the VM's instance past the cache.
func (r *Reconciler) readInstance(ctx context.Context, s *scope) error {
	vmi := &virtv1.VirtualMachineInstance{}
	err := r.live.Get(ctx, client.ObjectKeyFromObject(s.vm), vmi)
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("reading VirtualMachineInstance %s/%s: %w", s.vm.Namespace, s.vm.Name, err)
	}
	s.vmi = nil
	if err == nil && metav1.IsControlledBy(vmi, s.vm) {
		s.vmi = vmi
	}
	return nil
}

// finalize stops a deleted VM and lets it go once its VMI has gone. A VM that is deleted
// as an orphaning parent leaves its VMI running. The instance is read past the cache, which may lack one that the last pass
// made from a VM that was being deleted already, and may have one as it was before the garbage collector took its owner away
// and then, of which the cache may know, the VM's mark that its dependents stay.
func (r *Reconciler) finalize(ctx context.Context, s *scope) error {
	if !controllerutil.ContainsFinalizer(s.vm, virtv1.VirtualMachineControllerFinalizer) {
		return nil
	}
	if !controllerutil.ContainsFinalizer(s.vm, metav1.FinalizerOrphanDependents) {
		if err := r.readInstance(ctx, s); err != nil {
			return err
		}
		switch {
		case s.vmi == nil:
		case s.vmi.DeletionTimestamp != nil:
			return nil
		default:
			return r.stop(ctx, s)
		}
	}
	changed := s.vm.DeepCopy()
	controllerutil.RemoveFinalizer(changed, virtv1.VirtualMachineControllerFinalizer)
	if err := r.patch(ctx, changed, s.vm); err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("removing the finalizer from %s/%s: %w", s.vm.Namespace, s.vm.Name, err)
	}
	s.gone = true
	return nil
}
