package virtualmachine

import (
	"context"
	"fmt"

	virtv1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-vm/slipway/internal/names"
)

// expand writes what the VM's instance type and preference say into the VM, in their place, where the cluster asks for that.
// Revisions of them stay the VM's: by them it is known what a running guest was started with.
func (r *Reconciler) expand(ctx context.Context, s *scope) error {
	if s.vm.Spec.Instancetype == nil && s.vm.Spec.Preference == nil || s.vmi != nil && s.mustGo() {
		return nil // nothing hinders a stop
	}
	config, err := r.readSettings(ctx)
	if err != nil || !expands(config.policy, s.vm) {
		return err
	}
	changed := s.vm.DeepCopy()
	if err := r.resolver.Expand(ctx, changed); err != nil {
		return err
	}
	patch := client.MergeFromWithOptions(s.vm, client.MergeFromWithOptimisticLock{})
	if err := r.Patch(ctx, changed, patch, client.FieldOwner(names.ManagerController)); err != nil {
		return fmt.Errorf("writing what instance type and preference say into VirtualMachine %s/%s: %w", s.vm.Namespace, s.vm.Name, err)
	}
	s.vm = changed
	return nil
}

// expands says whether vm, which names an instance type or a preference, is to have them written out. By the policy expand,
// one that has them kept as they were is left alone.
func expands(policy virtv1.InstancetypeReferencePolicy, vm *virtv1.VirtualMachine) bool {
	switch policy {
	case virtv1.ExpandAll:
		return true
	case virtv1.Expand:
		return !kept(vm.Status.InstancetypeRef) && !kept(vm.Status.PreferenceRef) && !revised(vm)
	}
	return false
}

func kept(ref *virtv1.InstancetypeStatusRef) bool {
	return ref != nil && ref.ControllerRevisionRef != nil && ref.ControllerRevisionRef.Name != ""
}

// revised says whether vm itself names a revision of its instance type or preference.
func revised(vm *virtv1.VirtualMachine) bool {
	return vm.Spec.Instancetype != nil && vm.Spec.Instancetype.RevisionName != "" || vm.Spec.Preference != nil && vm.Spec.Preference.RevisionName != ""
}
