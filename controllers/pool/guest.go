package pool

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	virtv1 "kubevirt.io/api/core/v1"

	"github.com/slipway-vm/slipway/controllers/virtualmachine"
)

// mustRestart says whether vm's guest runs another template of its pool than vm has, or cannot
// take up another change of vm without a restart, and can be restarted: nobody has asked for that
// yet, and vm is not halted.
func mustRestart(vm *virtv1.VirtualMachine, vmi *virtv1.VirtualMachineInstance) bool {
	if vmi == nil || vmi.DeletionTimestamp != nil || vmi.IsFinal() || len(vm.Status.StateChangeRequests) > 0 {
		return false
	}
	strategy, err := vm.RunStrategy()
	return err == nil && strategy != virtv1.RunStrategyHalted && (ofAnotherRevision(vm, vmi) || virtualmachine.Outdated(vm, vmi) && saysRestart(vm))
}

// ofAnotherRevision says whether vmi was made from another template of the pool.
func ofAnotherRevision(vm *virtv1.VirtualMachine, vmi *virtv1.VirtualMachineInstance) bool {
	const revision = virtv1.VirtualMachinePoolRevisionName
	return vm.Spec.Template != nil && vm.Spec.Template.ObjectMeta.Labels[revision] != vmi.Labels[revision]
}

func saysRestart(vm *virtv1.VirtualMachine) bool {
	return slices.ContainsFunc(vm.Status.Conditions, func(c virtv1.VirtualMachineCondition) bool {
		return c.Type == virtv1.VirtualMachineRestartRequired && c.Status == corev1.ConditionTrue
	})
}

// unavailable says whether vm's guest ought to serve and does not. One that its user has
// stopped is not missed.
func unavailable(vm *virtv1.VirtualMachine, vmi *virtv1.VirtualMachineInstance) bool {
	strategy, err := vm.RunStrategy()
	switch {
	case vm.DeletionTimestamp != nil || err != nil || len(vm.Status.StateChangeRequests) > 0:
		return true
	case vmi == nil || vmi.IsFinal():
		// The other strategies start a guest once, and have not yet where the status names none.
		return strategy == virtv1.RunStrategyAlways ||
			strategy != virtv1.RunStrategyHalted && strategy != virtv1.RunStrategyManual && vm.Status.RunStrategy == ""
	case vmi.DeletionTimestamp != nil:
		return strategy != virtv1.RunStrategyHalted
	}
	return !slices.ContainsFunc(vmi.Status.Conditions, func(c virtv1.VirtualMachineInstanceCondition) bool {
		return c.Type == virtv1.VirtualMachineInstanceReady && c.Status == corev1.ConditionTrue
	})
}
