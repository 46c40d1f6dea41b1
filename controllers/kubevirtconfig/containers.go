package kubevirtconfig

import (
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation/field"
	virtv1 "kubevirt.io/api/core/v1"
)

// sized are the support containers that there are, with what each asks for and may have where nothing is said.
func sized() map[virtv1.SupportContainerType]corev1.ResourceRequirements {
	return map[virtv1.SupportContainerType]corev1.ResourceRequirements{
		virtv1.HotplugAttachment: {Requests: amounts("10m", "2M"), Limits: amounts("100m", "80M")},
		virtv1.VMExport:          {Requests: amounts("100m", "64Mi"), Limits: amounts("1", "512Mi")},
	}
}

// absent says why the field's other support containers are not there.
func absent() map[virtv1.SupportContainerType]string {
	const remove = "; remove it"
	return map[virtv1.SupportContainerType]string{
		virtv1.ContainerDisk:   "container disks have no container beside the guest: what hands them over has ended when it starts, and costs its pod nothing" + remove,
		virtv1.VirtioFS:        "file systems are served in the guest's own container, whose memory is counted with the guest's; additionalGuestMemoryOverheadRatio gives it more" + remove,
		virtv1.SideCar:         "virtual machines have no sidecars" + remove,
		virtv1.GuestConsoleLog: "the launcher keeps the log of the serial console itself" + remove,
	}
}

func amounts(cpu, memory string) corev1.ResourceList {
	return corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu), corev1.ResourceMemory: resource.MustParse(memory)}
}

// ContainerResources are what a support container of kind asks for and may have: the amounts that kubevirt names, and the
// defaults for the others.
func ContainerResources(kubevirt *virtv1.KubeVirt, kind virtv1.SupportContainerType) corev1.ResourceRequirements {
	for _, said := range kubevirt.Spec.Configuration.SupportContainerResources {
		if said.Type == kind {
			return resourcesOf(said)
		}
	}
	return sized()[kind]
}

func resourcesOf(said virtv1.SupportContainerResources) corev1.ResourceRequirements {
	all := sized()[said.Type]
	maps.Copy(all.Requests, said.Resources.Requests)
	maps.Copy(all.Limits, said.Resources.Limits)
	return all
}

// containers refuses support containers that there are not, and amounts that none can have.
func containers(asked []virtv1.SupportContainerResources, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	seen := map[virtv1.SupportContainerType]bool{}
	for i, said := range asked {
		at := path.Index(i)
		_, isThere := sized()[said.Type]
		why, isKnown := absent()[said.Type]
		switch {
		case seen[said.Type]:
			errs = append(errs, field.Duplicate(at.Child("type"), said.Type))
		case isThere:
			errs = append(errs, containerResources(said, at.Child("resources"))...)
		case isKnown:
			errs = append(errs, field.Invalid(at.Child("type"), said.Type, why))
		default:
			errs = append(errs, field.NotSupported(at.Child("type"), said.Type, slices.Sorted(maps.Keys(sized()))))
		}
		seen[said.Type] = true
	}
	return errs
}

// containerResources refuses what said names, together with the defaults for what it leaves out.
func containerResources(said virtv1.SupportContainerResources, at *field.Path) field.ErrorList {
	errs := namedAmounts(said.Resources.Requests, at.Child("requests"))
	errs = append(errs, namedAmounts(said.Resources.Limits, at.Child("limits"))...)
	if len(errs) > 0 {
		return errs
	}
	all := resourcesOf(said)
	for _, name := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory} {
		request, limit := all.Requests[name], all.Limits[name]
		if request.Cmp(limit) > 0 {
			errs = append(errs, field.Invalid(at.Child("limits").Key(string(name)), limit.String(),
				"it is less than the request of "+request.String()+"; write both, the limit at least as much"))
		}
	}
	return errs
}

func namedAmounts(list corev1.ResourceList, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	for _, name := range slices.Sorted(maps.Keys(list)) {
		amount := list[name]
		switch {
		case name != corev1.ResourceCPU && name != corev1.ResourceMemory:
			errs = append(errs, field.NotSupported(at, name, []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory}))
		case amount.Sign() <= 0:
			errs = append(errs, field.Invalid(at.Key(string(name)), amount.String(), "it is more than 0; leave it out for the default"))
		}
	}
	return errs
}
