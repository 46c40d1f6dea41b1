package virtualmachine

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	virtv1 "kubevirt.io/api/core/v1"
)

// A VM that waits to be started again tells why its last machine failed, as long as it waits: also in passes after that is gone.
func TestABackOffTellsOfTheLastFailure(t *testing.T) {
	retry := metav1.NewTime(now)
	s := scope{
		vm:           &virtv1.VirtualMachine{Spec: virtv1.VirtualMachineSpec{RunStrategy: new(virtv1.RunStrategyAlways)}},
		startFailure: &virtv1.VirtualMachineStartFailure{ConsecutiveFailCount: 3, RetryAfterTimestamp: &retry},
	}
	s.strategy, s.strategyError = strategyOf(s.vm)
	s.vm.Status.Conditions = []virtv1.VirtualMachineCondition{{
		Type: virtv1.VirtualMachineReady, Status: corev1.ConditionFalse, Reason: "Crashed", Message: "QEMU was killed",
	}}
	for range 2 {
		c := readiness(&s)
		for _, want := range []string{messageNoVMI, "3 starts failed", "2026-11-20T12:00:00Z", "The last one: Crashed: QEMU was killed"} {
			if c.Reason != reasonNoVMI || strings.Count(c.Message, want) != 1 {
				t.Errorf("%q is not in %q (%s)", want, c.Message, c.Reason)
			}
		}
		s.vm.Status.Conditions = []virtv1.VirtualMachineCondition{c}
	}
}
