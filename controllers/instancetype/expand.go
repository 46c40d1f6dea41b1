// Package instancetype puts instance types and preferences into the specs of virtual
// machines: Apply is pure, Resolver finds the objects that a VirtualMachine names or
// that its volumes carry the names of.
package instancetype

import (
	"maps"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation/field"
	virtv1 "kubevirt.io/api/core/v1"
	"kubevirt.io/api/instancetype/v1beta1"
)

// conflict is said of every field that both the VM and its instance type set.
const conflict = "conflicts with the selected instance type; remove it, or the instance type"

// Apply puts the instance type and the preference, either of which may be nil, into
// vmi. A field that the VM sets and the instance type also decides is an error, which
// names it below path, the path of vmi's spec; a preference only fills what is unset.
func Apply(vmi *virtv1.VirtualMachineInstance, it *v1beta1.VirtualMachineInstancetypeSpec, preference *v1beta1.VirtualMachinePreferenceSpec, path *field.Path) field.ErrorList {
	if it != nil {
		if errs := conflicts(&vmi.Spec, it, path); len(errs) > 0 {
			return errs
		}
		applyInstancetype(vmi, it, preference)
	}
	if preference == nil {
		return nil
	}
	applyPreference(vmi, preference)
	return unmet(&vmi.Spec, preference, path)
}

func conflicts(spec *virtv1.VirtualMachineInstanceSpec, it *v1beta1.VirtualMachineInstancetypeSpec, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	forbid := func(isSet bool, p *field.Path) {
		if isSet {
			errs = append(errs, field.Forbidden(p, conflict))
		}
	}
	domain := path.Child("domain")
	cpuConflicts(spec.Domain.CPU, &it.CPU, domain.Child("cpu"), forbid)
	if memory := spec.Domain.Memory; memory != nil {
		forbid(memory.Guest != nil, domain.Child("memory", "guest"))
		forbid(memory.Hugepages != nil, domain.Child("memory", "hugepages"))
	}
	resources := spec.Domain.Resources
	for _, name := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory} {
		_, requested := resources.Requests[name]
		_, limited := resources.Limits[name]
		forbid(requested, domain.Child("resources", "requests", string(name)))
		forbid(limited, domain.Child("resources", "limits", string(name)))
	}
	for key := range it.NodeSelector {
		_, isSet := spec.NodeSelector[key]
		forbid(isSet, path.Child("nodeSelector").Key(key))
	}
	forbid(spec.SchedulerName != "" && it.SchedulerName != "", path.Child("schedulerName"))
	forbid(len(spec.Domain.Devices.GPUs) > 0 && len(it.GPUs) > 0, domain.Child("devices", "gpus"))
	forbid(len(spec.Domain.Devices.HostDevices) > 0 && len(it.HostDevices) > 0, domain.Child("devices", "hostDevices"))
	forbid(spec.Domain.IOThreadsPolicy != nil && it.IOThreadsPolicy != nil, domain.Child("ioThreadsPolicy"))
	forbid(spec.Domain.LaunchSecurity != nil && it.LaunchSecurity != nil, domain.Child("launchSecurity"))
	return errs
}

// cpuConflicts calls forbid with the fields of cpu, which is at p, and whether both set them.
func cpuConflicts(cpu *virtv1.CPU, it *v1beta1.CPUInstancetype, p *field.Path, forbid func(bool, *field.Path)) {
	if cpu == nil {
		return
	}
	forbid(cpu.Cores > 0, p.Child("cores"))
	forbid(cpu.Sockets > 0, p.Child("sockets"))
	forbid(cpu.Threads > 0, p.Child("threads"))
	forbid(cpu.Model != "" && it.Model != nil, p.Child("model"))
	forbid(cpu.DedicatedCPUPlacement && it.DedicatedCPUPlacement != nil, p.Child("dedicatedCpuPlacement"))
	forbid(cpu.IsolateEmulatorThread && it.IsolateEmulatorThread != nil, p.Child("isolateEmulatorThread"))
	forbid(cpu.NUMA != nil && it.NUMA != nil, p.Child("numa"))
	forbid(cpu.Realtime != nil && it.Realtime != nil, p.Child("realtime"))
}

func applyInstancetype(vmi *virtv1.VirtualMachineInstance, it *v1beta1.VirtualMachineInstancetypeSpec, preference *v1beta1.VirtualMachinePreferenceSpec) {
	spec := &vmi.Spec
	applyCPU(spec, it, preference)
	applyMemory(spec, it)
	if len(it.NodeSelector) > 0 {
		spec.NodeSelector = merged(spec.NodeSelector, it.NodeSelector)
	}
	if it.SchedulerName != "" {
		spec.SchedulerName = it.SchedulerName
	}
	devices := &spec.Domain.Devices
	devices.GPUs = append(devices.GPUs, it.GPUs...)
	devices.HostDevices = append(devices.HostDevices, it.HostDevices...)
	setPointer(&spec.Domain.IOThreadsPolicy, it.IOThreadsPolicy)
	setPointer(&spec.Domain.IOThreads, it.IOThreads)
	setPointer(&spec.Domain.LaunchSecurity, it.LaunchSecurity)
	vmi.Annotations = merged(it.Annotations, vmi.Annotations)
}

func applyCPU(spec *virtv1.VirtualMachineInstanceSpec, it *v1beta1.VirtualMachineInstancetypeSpec, preference *v1beta1.VirtualMachinePreferenceSpec) {
	if spec.Domain.CPU == nil {
		spec.Domain.CPU = &virtv1.CPU{}
	}
	cpu := spec.Domain.CPU
	cpu.Sockets, cpu.Cores, cpu.Threads = topology(it.CPU.Guest, preference)
	if it.CPU.Model != nil {
		cpu.Model = *it.CPU.Model
	}
	if it.CPU.DedicatedCPUPlacement != nil {
		cpu.DedicatedCPUPlacement = *it.CPU.DedicatedCPUPlacement
	}
	if it.CPU.IsolateEmulatorThread != nil {
		cpu.IsolateEmulatorThread = *it.CPU.IsolateEmulatorThread
	}
	if it.CPU.MaxSockets != nil {
		cpu.MaxSockets = *it.CPU.MaxSockets
	}
	setPointer(&cpu.NUMA, it.CPU.NUMA)
	setPointer(&cpu.Realtime, it.CPU.Realtime)
}

func applyMemory(spec *virtv1.VirtualMachineInstanceSpec, it *v1beta1.VirtualMachineInstancetypeSpec) {
	if spec.Domain.Memory == nil {
		spec.Domain.Memory = &virtv1.Memory{}
	}
	memory := spec.Domain.Memory
	memory.Guest = new(it.Memory.Guest.DeepCopy())
	setPointer(&memory.Hugepages, it.Memory.Hugepages)
	setPointer(&memory.MaxGuest, it.Memory.MaxGuest)
	if percent := it.Memory.OvercommitPercent; percent > 0 {
		if spec.Domain.Resources.Requests == nil {
			spec.Domain.Resources.Requests = corev1.ResourceList{}
		}
		request := it.Memory.Guest.Value() * int64(100-percent) / 100
		spec.Domain.Resources.Requests[corev1.ResourceMemory] = *resource.NewQuantity(request, it.Memory.Guest.Format)
	}
}

// setPointer puts a copy of what value points to, if anything, into target.
func setPointer[T any](target **T, value *T) {
	if value != nil {
		*target = new(*value)
	}
}

// fillPointer does the same where target is unset.
func fillPointer[T any](target **T, value *T) {
	if *target == nil {
		setPointer(target, value)
	}
}

// merged returns base with over's entries put over it; nil for two empty maps.
func merged(base, over map[string]string) map[string]string {
	if len(base) == 0 && len(over) == 0 {
		return nil
	}
	result := map[string]string{}
	maps.Copy(result, base)
	maps.Copy(result, over)
	return result
}
