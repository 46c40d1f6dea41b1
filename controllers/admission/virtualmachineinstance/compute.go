package virtualmachineinstance

import (
	"fmt"
	"regexp"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation/field"
	virtv1 "kubevirt.io/api/core/v1"
)

// minMemory is less than any guest starts with; what is below is a forgotten unit.
const minMemory = 1 << 20

// addressable is what processors of this kind address at most: 52 bits.
const addressable = 1 << 52

// processorNames are names of models and features of processors as libvirt has them.
var processorNames = regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?$`)

func memory(spec *virtv1.VirtualMachineInstanceSpec, path *field.Path) field.ErrorList {
	domain := path.Child("domain")
	resources := spec.Domain.Resources
	errs := quantities(resources, domain.Child("resources"))
	memory := spec.Domain.Memory
	if memory == nil || memory.Guest == nil {
		return append(errs, field.Required(domain.Child("memory", "guest"), "no memory requested, at least one of memory.guest, memory.hugepages.pageSize or resources.requests.memory must be set"))
	}
	at := domain.Child("memory", "guest")
	if memory.Guest.Value() < minMemory {
		errs = append(errs, field.Invalid(at, memory.Guest.String(), "must be at least 1Mi; is the unit missing?"))
	}
	if memory.Guest.Value() > addressable {
		errs = append(errs, field.Invalid(at, memory.Guest.String(), "must be at most 4Pi, which is what a processor addresses"))
	}
	if limit, ok := resources.Limits[corev1.ResourceMemory]; ok && memory.Guest.Cmp(limit) > 0 {
		errs = append(errs, field.Invalid(at, memory.Guest.String(), fmt.Sprintf("must be equal to or less than the memory limit %s", limit.String())))
	}
	return append(errs, maxMemory(memory, domain.Child("memory"))...)
}

// maxMemory checks to what the guest's memory may grow while it runs.
func maxMemory(memory *virtv1.Memory, path *field.Path) field.ErrorList {
	if memory.MaxGuest == nil {
		return nil
	}
	var errs field.ErrorList
	if memory.Guest.Cmp(*memory.MaxGuest) > 0 {
		errs = append(errs, field.Invalid(path.Child("guest"), memory.Guest.String(), "Guest memory is greater than the configured maxGuest memory"))
	}
	if memory.MaxGuest.Value() > addressable {
		errs = append(errs, field.Invalid(path.Child("maxGuest"), memory.MaxGuest.String(), "must be at most 4Pi, which is what a processor addresses"))
	}
	if memory.Hugepages != nil {
		errs = append(errs, field.Forbidden(path.Child("maxGuest"), "memory in huge pages does not grow while the guest runs; remove one of them"))
	}
	return errs
}

// overheads checks what the pod is given beyond the guest's memory.
func overheads(spec *virtv1.VirtualMachineInstanceSpec, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	domain, memory := path.Child("domain"), spec.Domain.Memory
	if memory != nil && memory.ReservedOverhead != nil && memory.ReservedOverhead.AddedOverhead != nil {
		if added := memory.ReservedOverhead.AddedOverhead; added.Sign() < 0 || added.Value() > addressable {
			errs = append(errs, field.Invalid(domain.Child("memory", "reservedOverhead", "addedOverhead"), added.String(), "must be from 0 to 4Pi"))
		}
	}
	huge := memory != nil && memory.Hugepages != nil
	if own := spec.Domain.CPU != nil && spec.Domain.CPU.DedicatedCPUPlacement; spec.Domain.Resources.OvercommitGuestOverhead && (own || huge) {
		errs = append(errs, field.Forbidden(domain.Child("resources", "overcommitGuestOverhead"),
			"a machine with processors or huge pages of its own has all of its memory reserved; remove the field"))
	}
	return errs
}

// quantities checks requests and limits, and one against the other.
func quantities(resources virtv1.ResourceRequirements, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	for _, list := range []struct {
		name   string
		values corev1.ResourceList
	}{{"requests", resources.Requests}, {"limits", resources.Limits}} {
		for name, value := range list.values {
			if value.Sign() < 0 {
				errs = append(errs, field.Invalid(path.Child(list.name, string(name)), value.String(), "must be greater than or equal to 0."))
			}
		}
	}
	for name, request := range resources.Requests {
		if limit, ok := resources.Limits[name]; ok && exceeds(request, limit) {
			errs = append(errs, field.Invalid(path.Child("requests", string(name)), request.String(), fmt.Sprintf("must be less than or equal to the limit %s", limit.String())))
		}
	}
	return errs
}

func exceeds(request, limit resource.Quantity) bool {
	return limit.Sign() > 0 && request.Cmp(limit) > 0
}

// maxVCPUs is what the machine type takes.
const maxVCPUs = 710

var cpuPolicies = map[string]bool{"": true, "force": true, "require": true, "optional": true, "disable": true, "forbid": true}

func cpu(spec *virtv1.VirtualMachineInstanceSpec, path *field.Path) field.ErrorList {
	c := spec.Domain.CPU
	if c == nil {
		return nil
	}
	var errs field.ErrorList
	at := path.Child("domain", "cpu")
	if c.MaxSockets != 0 && c.Sockets > c.MaxSockets {
		errs = append(errs, field.Invalid(at.Child("sockets"), c.Sockets, "Number of sockets in CPU topology is greater than the maximum sockets allowed"))
	}
	if total := uint64(max(c.Sockets, c.MaxSockets, 1)) * uint64(max(c.Cores, 1)) * uint64(max(c.Threads, 1)); total > maxVCPUs || max(c.Sockets, c.MaxSockets) > maxVCPUs || c.Cores > maxVCPUs {
		errs = append(errs, field.Invalid(at, fmt.Sprintf("%d sockets, %d cores, %d threads", c.Sockets, c.Cores, c.Threads), fmt.Sprintf("must be at most %d virtual CPUs in all", maxVCPUs)))
	}
	if c.Model != "" && !processorNames.MatchString(c.Model) {
		errs = append(errs, field.Invalid(at.Child("model"), c.Model, "must be the name of a CPU model such as Nehalem"))
	}
	seen := map[string]bool{}
	for i, feature := range c.Features {
		if !cpuPolicies[feature.Policy] {
			errs = append(errs, field.NotSupported(at.Child("features").Index(i).Child("policy"), feature.Policy, []string{"force", "require", "optional", "disable", "forbid"}))
		}
		switch here := at.Child("features").Index(i).Child("name"); {
		case feature.Name == "":
			errs = append(errs, field.Required(here, "name the CPU feature"))
		case !processorNames.MatchString(feature.Name):
			errs = append(errs, field.Invalid(here, feature.Name, "must be the name of a CPU feature such as avx512f"))
		case seen[feature.Name]:
			errs = append(errs, field.Duplicate(here, feature.Name))
		}
		seen[feature.Name] = true
	}
	return errs
}
