package virtualmachineinstance

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation/field"
	virtv1 "kubevirt.io/api/core/v1"
)

// minMemory is less than any guest starts with; what is below is a forgotten unit.
const minMemory = 1 << 20

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
	if limit, ok := resources.Limits[corev1.ResourceMemory]; ok && memory.Guest.Cmp(limit) > 0 {
		errs = append(errs, field.Invalid(at, memory.Guest.String(), fmt.Sprintf("must be equal to or less than the memory limit %s", limit.String())))
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
	if total := uint64(max(c.Sockets, 1)) * uint64(max(c.Cores, 1)) * uint64(max(c.Threads, 1)); total > maxVCPUs || c.Sockets > maxVCPUs || c.Cores > maxVCPUs {
		errs = append(errs, field.Invalid(at, fmt.Sprintf("%d sockets, %d cores, %d threads", c.Sockets, c.Cores, c.Threads), fmt.Sprintf("must be at most %d virtual CPUs in all", maxVCPUs)))
	}
	for i, feature := range c.Features {
		if !cpuPolicies[feature.Policy] {
			errs = append(errs, field.NotSupported(at.Child("features").Index(i).Child("policy"), feature.Policy, []string{"force", "require", "optional", "disable", "forbid"}))
		}
		if feature.Name == "" {
			errs = append(errs, field.Required(at.Child("features").Index(i).Child("name"), "name the CPU feature"))
		}
	}
	return errs
}
