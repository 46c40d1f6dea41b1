package domain

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	v1 "kubevirt.io/api/core/v1"
	"libvirt.org/go/libvirtxml"
)

// VCPUs is the number of the guest's processors: the product of the topology, or,
// without one, the CPU that the VMI requests (else its limit), rounded up.
func VCPUs(vmi *v1.VirtualMachineInstance) uint {
	sockets, cores, threads := topology(vmi)
	return sockets * cores * threads
}

func topology(vmi *v1.VirtualMachineInstance) (sockets, cores, threads uint) {
	spec := vmi.Spec.Domain.CPU
	if spec == nil || spec.Sockets == 0 && spec.Cores == 0 && spec.Threads == 0 {
		return requestedCPUs(vmi), 1, 1
	}
	return max(uint(spec.Sockets), 1), max(uint(spec.Cores), 1), max(uint(spec.Threads), 1)
}

func requestedCPUs(vmi *v1.VirtualMachineInstance) uint {
	resources := vmi.Spec.Domain.Resources
	for _, list := range []corev1.ResourceList{resources.Requests, resources.Limits} {
		if quantity, ok := list[corev1.ResourceCPU]; ok && quantity.Value() > 0 {
			return uint(quantity.Value()) // Value rounds up
		}
	}
	return 1
}

func cpu(in Input, domain *libvirtxml.Domain) error {
	sockets, cores, threads := topology(in.VMI)
	most := sockets
	if spec := in.VMI.Spec.Domain.CPU; spec != nil {
		most = max(most, uint(spec.MaxSockets))
	}
	domain.VCPU = &libvirtxml.DomainVCPU{Placement: "static", Value: most * cores * threads}
	if most > sockets { // the rest is plugged in while the guest runs
		domain.VCPU.Current = sockets * cores * threads
	}
	domain.CPU = cpuModel(in)
	domain.CPU.Topology = &libvirtxml.DomainCPUTopology{Sockets: int(most), Dies: 1, Cores: int(cores), Threads: int(threads)}
	return nil
}

// deepPaging is a fifth level of page tables, for guests of more than 64 TiB. Emulation
// walks page tables in software, so it costs a tenth of a guest's speed there.
const deepPaging = "la57"

// cpuModel is the processor that the guest sees. Emulation offers one processor with
// all that it can do; models of the host mean that one there, and a named model is
// tried without the check against the host that only hardware needs.
func cpuModel(in Input) *libvirtxml.DomainCPU {
	model, features := "", []v1.CPUFeature(nil)
	if spec := in.VMI.Spec.Domain.CPU; spec != nil {
		model, features = spec.Model, spec.Features
	}
	out := &libvirtxml.DomainCPU{}
	host := model == "" || model == v1.CPUModeHostModel || model == v1.CPUModeHostPassthrough
	switch {
	case host && !in.KVM:
		out.Mode, out.Check = "maximum", "none"
		if !slices.ContainsFunc(features, func(f v1.CPUFeature) bool { return f.Name == deepPaging }) {
			features = append([]v1.CPUFeature{{Name: deepPaging, Policy: "disable"}}, features...)
		}
	case model == v1.CPUModeHostPassthrough:
		out.Mode, out.Check = model, "none"
	case host:
		out.Mode, out.Check = v1.CPUModeHostModel, "partial"
	default:
		out.Mode, out.Match, out.Check = "custom", "exact", "partial"
		fallback := "forbid"
		if !in.KVM {
			out.Check, fallback = "none", "allow"
		}
		out.Model = &libvirtxml.DomainCPUModel{Value: model, Fallback: fallback}
	}
	for _, feature := range features {
		policy := feature.Policy
		if policy == "" {
			policy = "require"
		}
		out.Features = append(out.Features, libvirtxml.DomainCPUFeature{Name: feature.Name, Policy: policy})
	}
	return out
}
