// Package defaults fills what a VirtualMachineInstance leaves open. The admission
// webhook uses all of it, and the VirtualMachine controller the parts that must stand
// before a preference is applied.
package defaults

import (
	"cmp"
	"runtime"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/utils/ptr"
	virtv1 "kubevirt.io/api/core/v1"
)

// GracePeriodSeconds is the grace period of a VMI that names none.
const GracePeriodSeconds = 30

// InterfaceModel is the network card of an interface that names none.
const InterfaceModel = virtv1.VirtIO

// Set fills all that vmi's spec leaves open, by what the cluster says of it. It is a function of these but for the
// firmware's UUID, which is a random one when vmi names none.
func Set(vmi *virtv1.VirtualMachineInstance, cluster Cluster) {
	spec := &vmi.Spec
	Disks(spec)
	virtv1.SetObjectDefaults_VirtualMachineInstance(vmi)
	Interface(spec)
	Networks(spec)
	setMachine(spec, cluster)
	setMemory(&spec.Domain)
	CPU(&spec.Domain, cluster)
	spec.Domain.CPU.Model = cmp.Or(spec.Domain.CPU.Model, cluster.CPUModel)
	setHyperv(&spec.Domain)
	setDiskBuses(spec.Domain.Devices.Disks)
	if spec.TerminationGracePeriodSeconds == nil {
		spec.TerminationGracePeriodSeconds = ptr.To[int64](GracePeriodSeconds)
	}
}

// Disks gives every volume that no disk shows to the guest a disk of its own.
func Disks(spec *virtv1.VirtualMachineInstanceSpec) {
	shown := map[string]bool{}
	for _, disk := range spec.Domain.Devices.Disks {
		shown[disk.Name] = true
	}
	for _, fs := range spec.Domain.Devices.Filesystems {
		shown[fs.Name] = true
	}
	if firmware := spec.Domain.Firmware; firmware != nil && firmware.ACPI != nil {
		shown[firmware.ACPI.SlicNameRef], shown[firmware.ACPI.MsdmNameRef] = true, true // for the firmware, not the guest
	}
	for _, volume := range spec.Volumes {
		if !shown[volume.Name] && volume.MemoryDump == nil {
			spec.Domain.Devices.Disks = append(spec.Domain.Devices.Disks, virtv1.Disk{Name: volume.Name})
		}
	}
}

// Interface connects a VMI that says nothing of networks to the pod network, by
// masquerade, which any pod's network takes: the field's own default is a bridge.
func Interface(spec *virtv1.VirtualMachineInstanceSpec) {
	devices := &spec.Domain.Devices
	if len(devices.Interfaces) > 0 || len(spec.Networks) > 0 || !ptr.Deref(devices.AutoattachPodInterface, true) {
		return
	}
	devices.Interfaces = []virtv1.Interface{*virtv1.DefaultMasqueradeNetworkInterface()}
	spec.Networks = []virtv1.Network{*virtv1.DefaultPodNetwork()}
}

// Networks completes interfaces and the pod network.
func Networks(spec *virtv1.VirtualMachineInstanceSpec) {
	interfaces := spec.Domain.Devices.Interfaces
	if len(interfaces) == 1 && len(spec.Networks) == 0 {
		network := *virtv1.DefaultPodNetwork()
		network.Name = interfaces[0].Name
		spec.Networks = []virtv1.Network{network}
	}
	for i := range interfaces {
		if interfaces[i].Model == "" {
			interfaces[i].Model = InterfaceModel
		}
	}
}

func setMachine(spec *virtv1.VirtualMachineInstanceSpec, cluster Cluster) {
	if spec.Architecture == "" {
		spec.Architecture = runtime.GOARCH
	}
	if spec.Domain.Machine == nil {
		spec.Domain.Machine = &virtv1.Machine{}
	}
	spec.Domain.Machine.Type = cmp.Or(spec.Domain.Machine.Type, cluster.Machine, Machine)
}

// setMemory makes the guest's memory what is requested, or else limited.
func setMemory(domain *virtv1.DomainSpec) {
	if domain.Memory != nil && domain.Memory.Guest != nil {
		return
	}
	for _, list := range []corev1.ResourceList{domain.Resources.Requests, domain.Resources.Limits} {
		if memory, ok := list[corev1.ResourceMemory]; ok {
			if domain.Memory == nil {
				domain.Memory = &virtv1.Memory{}
			}
			domain.Memory.Guest = new(memory.DeepCopy())
			return
		}
	}
}

// CPU completes what is requested of processors, and the topology; without one the guest has as many sockets as whole
// CPUs are limited, or else requested.
func CPU(domain *virtv1.DomainSpec, cluster Cluster) {
	if domain.CPU == nil {
		domain.CPU = &virtv1.CPU{}
	}
	requestCPU(domain, cluster.CPURequest)
	cpu := domain.CPU
	if cpu.Sockets == 0 && cpu.Cores == 0 && cpu.Threads == 0 {
		cpu.Sockets = wholeCPUs(domain.Resources)
	}
	cpu.Sockets = max(cpu.Sockets, 1)
	cpu.Cores = max(cpu.Cores, 1)
	cpu.Threads = max(cpu.Threads, 1)
}

// requestCPU has the VMI request what the cluster says, if it says nothing of that itself.
func requestCPU(domain *virtv1.DomainSpec, request *resource.Quantity) {
	resources := &domain.Resources
	if _, named := resources.Requests[corev1.ResourceCPU]; named || request == nil || domain.CPU.DedicatedCPUPlacement || !resources.Limits.Cpu().IsZero() {
		return
	}
	if resources.Requests == nil {
		resources.Requests = corev1.ResourceList{}
	}
	resources.Requests[corev1.ResourceCPU] = request.DeepCopy()
}

func wholeCPUs(resources virtv1.ResourceRequirements) uint32 {
	for _, list := range []corev1.ResourceList{resources.Limits, resources.Requests} {
		if cpu, ok := list[corev1.ResourceCPU]; ok && cpu.Value() > 0 {
			return uint32(min(cpu.Value(), 1<<16)) //nolint:gosec // bounded above
		}
	}
	return 1
}

func setDiskBuses(disks []virtv1.Disk) {
	for i := range disks {
		switch disk := &disks[i]; {
		case disk.CDRom != nil:
			disk.CDRom.Bus = cmp.Or(disk.CDRom.Bus, virtv1.DiskBusSATA)
		case disk.LUN != nil:
			disk.LUN.Bus = cmp.Or(disk.LUN.Bus, virtv1.DiskBusSCSI) // no other takes the guest's commands to the device
		case disk.Disk != nil:
			disk.Disk.Bus = cmp.Or(disk.Disk.Bus, virtv1.DiskBusSATA)
		default:
			disk.Disk = &virtv1.DiskTarget{Bus: virtv1.DiskBusSATA}
		}
	}
}
