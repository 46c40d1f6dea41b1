package vmi

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	v1 "kubevirt.io/api/core/v1"

	"github.com/slipway-vm/slipway/internal/names"
	"github.com/slipway-vm/slipway/runtime/protocol"
)

func TestTheGuestGrowsOnceThePodHas(t *testing.T) {
	guest := resource.MustParse("2Gi")
	told := func(kind v1.VirtualMachineInstanceConditionType, status corev1.ConditionStatus, reason string) v1.VirtualMachineInstanceCondition {
		return v1.VirtualMachineInstanceCondition{Type: kind, Status: status, Reason: reason}
	}
	for name, c := range map[string]struct {
		conditions []v1.VirtualMachineInstanceCondition
		state      protocol.State
		want       protocol.Resize
	}{
		"before the pod has": {
			conditions: []v1.VirtualMachineInstanceCondition{told(v1.VirtualMachineInstanceVCPUChange, corev1.ConditionTrue, "ResizingPod")},
			state:      protocol.State{VCPUs: 2},
		},
		"where the node refuses": {
			conditions: []v1.VirtualMachineInstanceCondition{told(v1.VirtualMachineInstanceVCPUChange, corev1.ConditionFalse, "Infeasible")},
			state:      protocol.State{VCPUs: 2},
		},
		"by processors": {
			conditions: []v1.VirtualMachineInstanceCondition{told(v1.VirtualMachineInstanceVCPUChange, corev1.ConditionTrue, names.ReasonPodResized)},
			state:      protocol.State{VCPUs: 2, Memory: &protocol.Memory{Requested: 1 << 30}},
			want:       protocol.Resize{VCPUs: 4},
		},
		"by memory": {
			conditions: []v1.VirtualMachineInstanceCondition{told(v1.VirtualMachineInstanceMemoryChange, corev1.ConditionTrue, names.ReasonPodResized)},
			state:      protocol.State{VCPUs: 2, Memory: &protocol.Memory{Requested: 1 << 30}},
			want:       protocol.Resize{Memory: 2 << 30},
		},
		"where it has by now": {
			conditions: []v1.VirtualMachineInstanceCondition{told(v1.VirtualMachineInstanceVCPUChange, corev1.ConditionTrue, names.ReasonPodResized)},
			state:      protocol.State{VCPUs: 4},
		},
		"where the launcher is too old": {
			conditions: []v1.VirtualMachineInstanceCondition{told(v1.VirtualMachineInstanceVCPUChange, corev1.ConditionTrue, names.ReasonPodResized)},
		},
	} {
		t.Run(name, func(t *testing.T) {
			vmi := &v1.VirtualMachineInstance{}
			vmi.Spec.Domain.CPU = &v1.CPU{Sockets: 2, Cores: 2, Threads: 1}
			vmi.Spec.Domain.Memory = &v1.Memory{Guest: &guest}
			vmi.Status.Conditions = c.conditions
			if got := wantedSize(vmi, &c.state); got != c.want {
				t.Errorf("got %+v, want %+v", got, c.want)
			}
		})
	}
}
