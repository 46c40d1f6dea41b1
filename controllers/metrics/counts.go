package metrics

import (
	virtv1 "kubevirt.io/api/core/v1"

	"github.com/slipway-vm/slipway/internal/metric"
)

var (
	vmCount = metric.Metric{
		Name: "kubevirt_number_of_vms", Kind: metric.Gauge, Help: "How many VMs a namespace has.", Labels: []string{"namespace"},
	}
	vmiCount = metric.Metric{
		Name: "kubevirt_vmi_phase_count", Kind: metric.Gauge, Help: "How many VMIs of a kind are in a phase on a node.",
		Labels: []string{
			"node", "phase", "os", "workload", "flavor", "instance_type", "preference",
			"guest_os_kernel_release", "guest_os_machine", "guest_os_arch", "guest_os_name", "guest_os_version_id",
		},
	}
	countMetrics = []metric.Metric{vmCount, vmiCount}
)

// counts adds VMs and VMIs up.
type counts struct {
	vms  map[string]int
	vmis map[kind]int
}

func newCounts() *counts { return &counts{vms: map[string]int{}, vmis: map[kind]int{}} }

func (c *counts) addVM(vm *virtv1.VirtualMachine)           { c.vms[vm.Namespace]++ }
func (c *counts) addVMI(vmi *virtv1.VirtualMachineInstance) { c.vmis[kindOf(vmi)]++ }

func (c *counts) tell(tell teller) {
	for namespace, n := range c.vms {
		tell(vmCount, float64(n), namespace)
	}
	for k, n := range c.vmis {
		tell(vmiCount, float64(n), k.node, k.phase, k.os, k.workload, k.flavor, k.instancetype, k.preference,
			k.kernel, k.machine, k.arch, k.system, k.version)
	}
}
