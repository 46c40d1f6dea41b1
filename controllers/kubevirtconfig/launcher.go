package kubevirtconfig

import (
	"math"
	"path"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	virtv1 "kubevirt.io/api/core/v1"
)

// mostOverhead is the greatest ratio of overhead that is taken: more is a mistake.
const mostOverhead = 100

// OverheadRatio is by what the computed overhead of launcher pods is multiplied: 1 at least, and where kubevirt says
// nothing that can be read.
func OverheadRatio(kubevirt *virtv1.KubeVirt) float64 {
	said := kubevirt.Spec.Configuration.AdditionalGuestMemoryOverheadRatio
	if said == nil {
		return 1
	}
	ratio, err := strconv.ParseFloat(*said, 64)
	if err != nil || math.IsNaN(ratio) || ratio < 1 || ratio > mostOverhead {
		return 1
	}
	return ratio
}

// LauncherSeccomp is the seccomp profile that kubevirt names for launcher pods; nil for none.
func LauncherSeccomp(kubevirt *virtv1.KubeVirt) *corev1.SeccompProfile {
	seccomp := kubevirt.Spec.Configuration.SeccompConfiguration
	if seccomp == nil || seccomp.VirtualMachineInstanceProfile == nil || seccomp.VirtualMachineInstanceProfile.CustomProfile == nil {
		return nil
	}
	custom := seccomp.VirtualMachineInstanceProfile.CustomProfile
	if custom.LocalhostProfile != nil {
		return &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeLocalhost, LocalhostProfile: custom.LocalhostProfile}
	}
	return &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault}
}

// launchers refuses what no launcher pod can be made by.
func launchers(config *virtv1.KubeVirtConfiguration, at *field.Path) field.ErrorList {
	errs := overheadRatio(config.AdditionalGuestMemoryOverheadRatio, at.Child("additionalGuestMemoryOverheadRatio"))
	errs = append(errs, metav1validation.ValidateLabelSelector(config.AutoCPULimitNamespaceLabelSelector,
		metav1validation.LabelSelectorValidationOptions{}, at.Child("autoCPULimitNamespaceLabelSelector"))...)
	if tracking := config.ChangedBlockTrackingLabelSelectors; tracking != nil {
		of := at.Child("changedBlockTrackingLabelSelectors")
		for name, selector := range map[string]*metav1.LabelSelector{
			"namespaceLabelSelector": tracking.NamespaceLabelSelector, "virtualMachineLabelSelector": tracking.VirtualMachineLabelSelector,
		} {
			errs = append(errs, metav1validation.ValidateLabelSelector(selector, metav1validation.LabelSelectorValidationOptions{}, of.Child(name))...)
		}
	}
	if class := config.DefaultRuntimeClass; class != "" {
		for _, problem := range validation.IsDNS1123Subdomain(class) {
			errs = append(errs, field.Invalid(at.Child("defaultRuntimeClass"), class, "it is no name of a RuntimeClass: "+problem))
		}
	}
	errs = append(errs, containers(config.SupportContainerResources, at.Child("supportContainerResources"))...)
	return append(errs, seccomp(config.SeccompConfiguration, at.Child("seccompConfiguration", "virtualMachineInstanceProfile"))...)
}

func overheadRatio(said *string, at *field.Path) field.ErrorList {
	if said == nil {
		return nil
	}
	ratio, err := strconv.ParseFloat(*said, 64)
	if err != nil || math.IsNaN(ratio) || ratio < 1 || ratio > mostOverhead {
		return field.ErrorList{field.Invalid(at, *said, "it is a number from 1 to "+strconv.Itoa(mostOverhead)+`, as text: "1.5"`)}
	}
	return nil
}

func seccomp(asked *virtv1.SeccompConfiguration, at *field.Path) field.ErrorList {
	if asked == nil || asked.VirtualMachineInstanceProfile == nil {
		return nil
	}
	at = at.Child("customProfile")
	custom := asked.VirtualMachineInstanceProfile.CustomProfile
	switch {
	case custom == nil:
		return field.ErrorList{field.Required(at, "name a profile in it, or leave virtualMachineInstanceProfile out: launchers have the runtime's")}
	case custom.LocalhostProfile == nil:
		return nil
	case custom.RuntimeDefaultProfile:
		return field.ErrorList{field.Invalid(at.Child("runtimeDefaultProfile"), true, "localhostProfile names another; remove one of them")}
	}
	file := *custom.LocalhostProfile
	if file == "" || path.IsAbs(file) || slices.Contains(strings.Split(file, "/"), "..") {
		return field.ErrorList{field.Invalid(at.Child("localhostProfile"), file, "it is the path of a file below the kubelet's folder seccomp, without ..")}
	}
	return nil
}
