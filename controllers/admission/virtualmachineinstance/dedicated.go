package virtualmachineinstance

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation/field"
	virtv1 "kubevirt.io/api/core/v1"
)

// pageSizes are the sizes of huge pages, as the resources of nodes are called after them.
var pageSizes = []string{"2Mi", "1Gi"}

// hugepages checks that the guest's memory is made of whole pages.
func hugepages(spec *virtv1.VirtualMachineInstanceSpec, path *field.Path) field.ErrorList {
	memory := spec.Domain.Memory
	if memory == nil || memory.Hugepages == nil {
		return nil
	}
	at := path.Child("domain", "memory", "hugepages", "pageSize")
	size := memory.Hugepages.PageSize
	if !slices.Contains(pageSizes, size) {
		return field.ErrorList{field.NotSupported(at, size, pageSizes)}
	}
	if memory.Guest == nil {
		return nil // memory has said so
	}
	page, guest := resource.MustParse(size), memory.Guest.Value()
	here := path.Child("domain", "memory", "guest")
	switch {
	case guest < page.Value():
		return field.ErrorList{field.Invalid(here, memory.Guest.String(), fmt.Sprintf("must be equal to or larger than page size %s '%s'", at, size))}
	case guest%page.Value() != 0:
		return field.ErrorList{field.Invalid(here, memory.Guest.String(), fmt.Sprintf("is not a multiple of the page size %s '%s'", at, size))}
	}
	return nil
}

// dedicatedCPUs checks that the pod can ask for whole processors, as many as the guest has.
func dedicatedCPUs(spec *virtv1.VirtualMachineInstanceSpec, path *field.Path) field.ErrorList {
	cpu := spec.Domain.CPU
	if cpu == nil {
		return nil
	}
	at := path.Child("domain", "cpu")
	if !cpu.DedicatedCPUPlacement {
		if cpu.IsolateEmulatorThread {
			return field.ErrorList{field.Invalid(at.Child("isolateEmulatorThread"), true, "IsolateEmulatorThread should be only set in combination with DedicatedCPUPlacement")}
		}
		return nil
	}
	var errs field.ErrorList
	if cpu.Threads > 2 {
		errs = append(errs, field.Invalid(at.Child("dedicatedCpuPlacement"), true,
			fmt.Sprintf("Not more than two threads must be provided at %s (got %d) when DedicatedCPUPlacement is true", at.Child("threads"), cpu.Threads)))
	}
	if cpu.MaxSockets > cpu.Sockets {
		errs = append(errs, field.Invalid(at.Child("maxSockets"), cpu.MaxSockets, "the guest gets no more processors while it runs when dedicatedCpuPlacement is true; remove one of them"))
	}
	return append(errs, dedicatedResources(spec, path)...)
}

// dedicatedResources checks what else is said of the pod's processors and memory. Its class is
// Guaranteed only when requests are its limits.
func dedicatedResources(spec *virtv1.VirtualMachineInstanceSpec, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	resources, cpu := spec.Domain.Resources, spec.Domain.CPU
	at, here := path.Child("domain", "resources"), path.Child("domain", "cpu", "dedicatedCpuPlacement")
	guest := int64(max(cpu.Sockets, 1)) * int64(max(cpu.Cores, 1)) * int64(max(cpu.Threads, 1))
	for _, list := range []struct {
		name   string
		values corev1.ResourceList
	}{{"requests", resources.Requests}, {"limits", resources.Limits}} {
		quantity, named := list.values[corev1.ResourceCPU]
		if !named || quantity.IsZero() {
			continue
		}
		this := at.Child(list.name, string(corev1.ResourceCPU))
		switch {
		case quantity.Value()*1000 != quantity.MilliValue():
			errs = append(errs, field.Invalid(this, quantity.String(), fmt.Sprintf("provided resources CPU %s must be an integer", list.name)))
		case quantity.Value() != guest:
			errs = append(errs, field.Invalid(here, true, fmt.Sprintf(
				"%s must not be provided at the same time with a topology of another number of processors (%d) when DedicatedCPUPlacement is true", this, guest)))
		}
	}
	request, requested := resources.Requests[corev1.ResourceMemory]
	limit, limited := resources.Limits[corev1.ResourceMemory]
	if requested && limited && request.Cmp(limit) != 0 {
		errs = append(errs, field.Invalid(at.Child("requests", string(corev1.ResourceMemory)), request.String(),
			fmt.Sprintf("must be equal to %s", at.Child("limits", string(corev1.ResourceMemory)))))
	}
	return errs
}

// numa checks what a guest needs that sees the node's NUMA nodes.
func numa(spec *virtv1.VirtualMachineInstanceSpec, path *field.Path) field.ErrorList {
	cpu, memory := spec.Domain.CPU, spec.Domain.Memory
	if cpu == nil || cpu.NUMA == nil || cpu.NUMA.GuestMappingPassthrough == nil {
		return nil
	}
	var errs field.ErrorList
	domain := path.Child("domain")
	at := domain.Child("cpu", "numa", "guestMappingPassthrough")
	if !cpu.DedicatedCPUPlacement {
		errs = append(errs, field.Invalid(at, "{}", fmt.Sprintf("%s must be set to true when NUMA topology strategy is set in %s", domain.Child("cpu", "dedicatedCpuPlacement"), at)))
	}
	if memory == nil || memory.Hugepages == nil {
		errs = append(errs, field.Invalid(at, "{}", fmt.Sprintf("%s must be requested when NUMA topology strategy is set in %s", domain.Child("memory", "hugepages"), at)))
	}
	return errs
}

// realtime checks what a guest in real time needs, and which of its processors are.
func realtime(spec *virtv1.VirtualMachineInstanceSpec, path *field.Path) field.ErrorList {
	cpu := spec.Domain.CPU
	if cpu == nil || cpu.Realtime == nil {
		return nil
	}
	var errs field.ErrorList
	at := path.Child("domain", "cpu")
	if !cpu.DedicatedCPUPlacement {
		errs = append(errs, field.Required(at.Child("dedicatedCpuPlacement"),
			fmt.Sprintf("%s must be set to true when %s is used", at.Child("dedicatedCpuPlacement"), at.Child("realtime"))))
	}
	if cpu.NUMA == nil || cpu.NUMA.GuestMappingPassthrough == nil {
		errs = append(errs, field.Required(at.Child("numa", "guestMappingPassthrough"),
			fmt.Sprintf("%s must be defined when %s is used", at.Child("numa", "guestMappingPassthrough"), at.Child("realtime"))))
	}
	guest := uint64(max(cpu.Sockets, 1)) * uint64(max(cpu.Cores, 1)) * uint64(max(cpu.Threads, 1))
	if err := maskOf(cpu.Realtime.Mask, guest); err != nil {
		errs = append(errs, field.Invalid(at.Child("realtime", "mask"), cpu.Realtime.Mask, err.Error()))
	}
	return errs
}

// maskOf reads a set of the guest's processors, of which there are count: numbers, ranges, and
// numbers with ^ before them that are taken out of what stands before.
func maskOf(mask string, count uint64) error {
	if mask == "" {
		return nil
	}
	const example = "write it like 0-3,^1"
	in := map[uint64]bool{}
	for part := range strings.SplitSeq(mask, ",") {
		part = strings.TrimSpace(part)
		rest, out := strings.CutPrefix(part, "^")
		from, to, isRange := strings.Cut(rest, "-")
		if !isRange {
			to = from
		}
		first, err := strconv.ParseUint(from, 10, 32)
		last, lastErr := strconv.ParseUint(to, 10, 32)
		switch {
		case err != nil || lastErr != nil || first > last || out && isRange:
			return fmt.Errorf("%q is no processor and no range of them; %s", part, example)
		case last >= count:
			return fmt.Errorf("the guest has no processor %d, only 0 to %d; %s", last, count-1, example)
		}
		for number := first; number <= last; number++ {
			in[number] = !out
		}
	}
	for _, chosen := range in {
		if chosen {
			return nil
		}
	}
	return fmt.Errorf("no processor is left; %s", example)
}
