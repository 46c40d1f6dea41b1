package metrics

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	virtv1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// tellRequests tells what a VM asks for. What an instance type adds is known while the VM has
// an instance, into which it was put.
func (w *world) tellRequests(tell teller, vm *virtv1.VirtualMachine) {
	domain := &vm.Spec.Template.Spec.Domain
	if vm.Spec.Instancetype != nil {
		if vmi := w.named[client.ObjectKeyFromObject(vm)]; vmi != nil {
			domain = &vmi.Spec.Domain
		}
	}
	request := func(value float64, resource, unit, source string) {
		if value > 0 {
			tell(vmRequests, value, vm.Name, vm.Namespace, resource, unit, source)
		}
	}
	requests := domain.Resources.Requests
	request(float64(requests.Memory().Value()), "memory", "bytes", "domain")
	if memory := domain.Memory; memory != nil {
		if memory.Guest != nil {
			request(float64(memory.Guest.Value()), "memory", "bytes", "guest")
		}
		if memory.Hugepages != nil {
			if size, err := resource.ParseQuantity(memory.Hugepages.PageSize); err == nil {
				request(float64(size.Value()), "memory", "bytes", "hugepages")
			}
		}
	}
	request(requests.Cpu().AsApproximateFloat64(), "cpu", "cores", "requests")
	if cpu := domain.CPU; cpu != nil {
		request(float64(cpu.Cores), "cpu", "cores", "domain")
		request(float64(cpu.Threads), "cpu", "threads", "domain")
		request(float64(cpu.Sockets), "cpu", "sockets", "domain")
	} else if requests.Cpu().IsZero() {
		for _, unit := range []string{"cores", "threads", "sockets"} {
			request(1, "cpu", unit, "default")
		}
	}
	tellLimits(tell, vm, domain.Resources.Limits)
}

func tellLimits(tell teller, vm *virtv1.VirtualMachine, limits corev1.ResourceList) {
	if memory := limits.Memory(); !memory.IsZero() {
		tell(vmLimits, float64(memory.Value()), vm.Name, vm.Namespace, "memory", "bytes")
	}
	if cpu := limits.Cpu(); !cpu.IsZero() {
		tell(vmLimits, cpu.AsApproximateFloat64(), vm.Name, vm.Namespace, "cpu", "cores")
	}
}
