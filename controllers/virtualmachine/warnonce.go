package virtualmachine

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
	virtv1 "kubevirt.io/api/core/v1"
)

// warnOnce has a Warning event of err, unless the VM's condition says it already: what fails is tried again and again.
func (r *Reconciler) warnOnce(vm *virtv1.VirtualMachine, reason, format string, err error) {
	for _, c := range vm.Status.Conditions {
		if c.Type == virtv1.VirtualMachineFailure && c.Status == corev1.ConditionTrue && strings.Contains(c.Message, err.Error()) {
			return
		}
	}
	r.warning(vm, reason, format, err)
}
