package virtualmachine

import (
	"context"
	"fmt"

	virtv1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-vm/slipway/controllers/hotplug"
	"github.com/slipway-vm/slipway/internal/names"
)

// plugVolumes gives the running VMI the volumes that were added to the VM's template, and
// takes those from it that were removed, where they can come and go without a restart.
func (r *Reconciler) plugVolumes(ctx context.Context, s *scope) error {
	if s.vmi == nil || s.vmi.DeletionTimestamp != nil || s.vmi.Status.Phase != virtv1.Running || s.vm.Spec.Template == nil {
		return nil
	}
	changed := s.vmi.DeepCopy()
	if !hotplug.Follow(&changed.Spec, &s.vm.Spec.Template.Spec, hotplug.Ephemeral(s.vmi)) {
		return nil
	}
	patch := client.MergeFromWithOptions(s.vmi, client.MergeFromWithOptimisticLock{})
	if err := r.Patch(ctx, changed, patch, client.FieldOwner(names.ManagerController)); err != nil {
		return fmt.Errorf("changing the volumes of VirtualMachineInstance %s/%s: %w", s.vmi.Namespace, s.vmi.Name, err)
	}
	s.vmi = changed
	return nil
}
