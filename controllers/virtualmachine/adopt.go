package virtualmachine

import (
	"context"
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	virtv1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-vm/slipway/internal/names"
)

// reasonAdopted is the reason of the event about an instance that is the VM's now.
const reasonAdopted = "SuccessfulAdopt"

// isOrphan says whether vmi was made for a VM that was deleted and left it running, as kubectl delete --cascade=orphan does.
func isOrphan(vmi *virtv1.VirtualMachineInstance) bool {
	return metav1.GetControllerOf(vmi) == nil && vmi.DeletionTimestamp == nil && vmi.Annotations[AnnotationTemplate] != ""
}

// adopt makes the instance the VM's that an earlier VM of its name left running: its guest goes on.
func (r *Reconciler) adopt(ctx context.Context, s *scope) error {
	if s.orphan == nil {
		return nil
	}
	if err := r.stays(ctx, s.vm); err != nil {
		return err
	}
	adopted := s.orphan.DeepCopy()
	adopted.OwnerReferences = append(adopted.OwnerReferences, *metav1.NewControllerRef(s.vm, virtv1.VirtualMachineGroupVersionKind))
	patch := client.MergeFromWithOptions(s.orphan, client.MergeFromWithOptimisticLock{})
	if err := r.Patch(ctx, adopted, patch, client.FieldOwner(names.ManagerController)); err != nil {
		return fmt.Errorf("taking VirtualMachineInstance %s/%s, which an earlier VM left, over: %w", adopted.Namespace, adopted.Name, err)
	}
	r.normal(s.vm, reasonAdopted, "Took over the running virtual machine instance %s, which an earlier VM of this name left", adopted.Name)
	s.vmi = adopted
	return nil
}

// stays makes sure that vm is there and is not being deleted; it is a conflict otherwise. It reads past the cache, which may show that an
// instance has lost its owner before it shows that the owner, which is vm then, is deleted and leaves it: taken back, it would go with vm.
func (r *Reconciler) stays(ctx context.Context, vm *virtv1.VirtualMachine) error {
	now := &virtv1.VirtualMachine{}
	err := r.live.Get(ctx, client.ObjectKeyFromObject(vm), now)
	switch {
	case client.IgnoreNotFound(err) != nil:
		return fmt.Errorf("reading VirtualMachine %s/%s: %w", vm.Namespace, vm.Name, err)
	case err != nil || now.UID != vm.UID || now.DeletionTimestamp != nil:
		conflict := apierrors.NewConflict(virtv1.Resource("virtualmachines"), vm.Name, errors.New("it is being deleted"))
		return fmt.Errorf("taking over what an earlier VM left: %w", conflict)
	}
	return nil
}
