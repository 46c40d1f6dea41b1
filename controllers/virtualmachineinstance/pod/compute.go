package pod

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/utils/ptr"
	virtv1 "kubevirt.io/api/core/v1"

	"github.com/slipway-vm/slipway/internal/dedicated"
	"github.com/slipway-vm/slipway/internal/names"
)

// ephemeralStorage is what launcher, libvirt and QEMU write for themselves: logs and
// state files. Overlays of container disks and empty disks come on top, as they fill.
const ephemeralStorage = "50M"

func computeContainer(in Input) (corev1.Container, error) {
	resources, err := computeResources(in)
	if err != nil {
		return corev1.Container{}, err
	}
	mounts, devices := claimMounts(in)
	_, images := imageVolumes(in)
	_, access := accessVolumes(in.VMI)
	return corev1.Container{
		Name:            names.ComputeContainer,
		Image:           in.LauncherImage,
		ImagePullPolicy: in.PullPolicy,
		Command:         []string{"/usr/bin/virt-launcher"},
		Args:            launcherArgs(in.VMI),
		Env:             launcherEnv(in),
		Ports:           containerPorts(in.VMI),
		Resources:       resources,
		VolumeMounts:    slices.Concat(ownMounts(), hugepageMounts(in.VMI), stateMounts(in), mounts, images, access),
		VolumeDevices:   devices,
		LivenessProbe:   computeProbe(in.VMI, in.VMI.Spec.LivenessProbe, livenessKind),
		ReadinessProbe:  computeProbe(in.VMI, in.VMI.Spec.ReadinessProbe, readinessKind),
		SecurityContext: containerSecurity(capabilities(in.VMI)...),
	}, nil
}

func containerSecurity(add ...corev1.Capability) *corev1.SecurityContext {
	return &corev1.SecurityContext{
		AllowPrivilegeEscalation: new(false),
		Capabilities:             &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}, Add: add},
	}
}

// containerPorts names the interfaces' ports, so that a Service can target them by name.
func containerPorts(vmi *virtv1.VirtualMachineInstance) []corev1.ContainerPort {
	var ports []corev1.ContainerPort
	for _, iface := range vmi.Spec.Domain.Devices.Interfaces {
		for _, port := range iface.Ports {
			protocol := corev1.Protocol(port.Protocol)
			if protocol == "" {
				protocol = corev1.ProtocolTCP
			}
			ports = append(ports, corev1.ContainerPort{Name: port.Name, Protocol: protocol, ContainerPort: port.Port})
		}
	}
	return ports
}

// computeResources are the VMI's own requests and limits with the overhead added to
// memory, and the devices that the guest uses.
func computeResources(in Input) (corev1.ResourceRequirements, error) {
	wanted := in.VMI.Spec.Domain.Resources
	overhead := MemoryOverhead(in.VMI, in.KVM, in.OverheadRatio)
	memory, err := memoryRequest(in)
	if err != nil {
		return corev1.ResourceRequirements{}, err
	}
	if !wanted.OvercommitGuestOverhead {
		memory.Add(overhead)
	}
	resources := corev1.ResourceRequirements{Requests: corev1.ResourceList{
		corev1.ResourceMemory:           memory,
		corev1.ResourceCPU:              cpuRequest(in),
		corev1.ResourceEphemeralStorage: resource.MustParse(ephemeralStorage),
	}, Limits: corev1.ResourceList{}}
	for name, quantity := range wanted.Requests {
		if name != corev1.ResourceMemory && name != corev1.ResourceCPU {
			resources.Requests[name] = quantity
		}
	}
	for name, quantity := range wanted.Limits {
		limit := quantity.DeepCopy()
		if name == corev1.ResourceMemory {
			limit.Add(overhead)
		}
		resources.Limits[name] = limit
	}
	limitCPU(in, resources)
	inHugepages(in.VMI, overhead, resources)
	guarantee(in.VMI, resources)
	for _, device := range devices(in) {
		resources.Requests[device] = resource.MustParse("1")
		resources.Limits[device] = resource.MustParse("1")
	}
	return resources, nil
}

// limitCPU holds the container to a processor for each virtual CPU, where that is asked for and the VMI names no limit.
// One whose VMI requests more than that is held to its request. Dedicated processors are a limit of their own.
func limitCPU(in Input, resources corev1.ResourceRequirements) {
	if _, named := resources.Limits[corev1.ResourceCPU]; named || !in.LimitCPU {
		return
	}
	limit := *resource.NewQuantity(VCPUs(in.VMI), resource.DecimalSI)
	if request := resources.Requests[corev1.ResourceCPU]; request.Cmp(limit) > 0 {
		limit = request.DeepCopy()
	}
	resources.Limits[corev1.ResourceCPU] = limit
}

// Resizable are those of the compute container's resources that a running pod can be given
// others of. Only the VMI and what resources are computed from is needed of in.
func Resizable(in Input) (corev1.ResourceRequirements, error) {
	all, err := computeResources(in)
	if err != nil {
		return all, err
	}
	pick := func(from corev1.ResourceList) corev1.ResourceList {
		out := corev1.ResourceList{}
		for _, name := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory} {
			if quantity, ok := from[name]; ok {
				out[name] = quantity
			}
		}
		return out
	}
	return corev1.ResourceRequirements{Requests: pick(all.Requests), Limits: pick(all.Limits)}, nil
}

func devices(in Input) []corev1.ResourceName {
	var used []corev1.ResourceName
	if in.KVM {
		used = append(used, names.DeviceKVM)
	}
	if len(in.VMI.Spec.Domain.Devices.Interfaces) > 0 {
		used = append(used, names.DeviceTUN)
	}
	if in.KVM && in.VhostNet && hasVirtioNIC(in.VMI) {
		used = append(used, names.DeviceVhostNet)
	}
	if HasVSOCK(in.VMI) {
		used = append(used, names.DeviceVhostVSOCK)
	}
	return used
}

// hasVirtioNIC says whether the guest of vmi has a network card that the node's kernel can serve.
func hasVirtioNIC(vmi *virtv1.VirtualMachineInstance) bool {
	return slices.ContainsFunc(vmi.Spec.Domain.Devices.Interfaces, func(nic virtv1.Interface) bool {
		return (nic.Model == "" || nic.Model == "virtio") && nic.State != virtv1.InterfaceStateAbsent
	})
}

// HasVSOCK says whether the guest of vmi has sockets to its node.
func HasVSOCK(vmi *virtv1.VirtualMachineInstance) bool {
	return ptr.Deref(vmi.Spec.Domain.Devices.AutoattachVSOCK, false)
}

// memoryRequest is what the VMI requests, or else its guest memory by the cluster's overcommit;
// no less than the guest's memory where the pod is held to what it requests.
func memoryRequest(in Input) (resource.Quantity, error) {
	memory, err := wantedMemory(in)
	if guest := guestMemory(in.VMI); dedicated.Asked(in.VMI) && memory.Cmp(guest) < 0 {
		return guest, err
	}
	return memory, err
}

func wantedMemory(in Input) (resource.Quantity, error) {
	wanted := in.VMI.Spec.Domain.Resources
	if request, ok := wanted.Requests[corev1.ResourceMemory]; ok {
		return request.DeepCopy(), nil
	}
	if limit, ok := wanted.Limits[corev1.ResourceMemory]; ok {
		return limit.DeepCopy(), nil
	}
	guest := guestMemory(in.VMI)
	if guest.IsZero() {
		return resource.Quantity{}, fmt.Errorf("no memory requested, at least one of memory.guest, memory.hugepages.pageSize or resources.requests.memory must be set")
	}
	if in.MemoryOvercommit > 0 && in.MemoryOvercommit != 100 {
		return *resource.NewQuantity(guest.Value()*100/in.MemoryOvercommit, resource.BinarySI), nil
	}
	return guest, nil
}

// cpuRequest is what the VMI requests, or else its share of its virtual CPUs.
func cpuRequest(in Input) resource.Quantity {
	wanted := in.VMI.Spec.Domain.Resources
	if request, ok := wanted.Requests[corev1.ResourceCPU]; ok {
		return request.DeepCopy()
	}
	if limit, ok := wanted.Limits[corev1.ResourceCPU]; ok {
		return limit.DeepCopy()
	}
	ratio := max(in.CPURatio, 1)
	return *resource.NewMilliQuantity(max(VCPUs(in.VMI)*1000/ratio, 1), resource.DecimalSI)
}

// VCPUs returns how many virtual CPUs vmi has.
func VCPUs(vmi *virtv1.VirtualMachineInstance) int64 {
	cpu := vmi.Spec.Domain.CPU
	if cpu == nil {
		return 1
	}
	return int64(max(cpu.Cores, 1)) * int64(max(cpu.Sockets, 1)) * int64(max(cpu.Threads, 1))
}

// guestMemory returns the memory that the guest sees.
func guestMemory(vmi *virtv1.VirtualMachineInstance) resource.Quantity {
	domain := vmi.Spec.Domain
	if domain.Memory != nil && domain.Memory.Guest != nil {
		return domain.Memory.Guest.DeepCopy()
	}
	for _, list := range []corev1.ResourceList{domain.Resources.Requests, domain.Resources.Limits} {
		if memory, ok := list[corev1.ResourceMemory]; ok {
			return memory.DeepCopy()
		}
	}
	return resource.Quantity{}
}
