// Package pool validates VirtualMachinePools at admission.
package pool

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation/field"
	poolv1 "kubevirt.io/api/pool/v1beta1"

	controller "github.com/slipway-vm/slipway/controllers/pool"
)

// TemplatePath is where the spec of a pool's VMs is.
func TemplatePath() *field.Path { return field.NewPath("spec", "virtualMachineTemplate", "spec") }

// Validate returns what is wrong with pool, but for the spec of its VMs, which is checked as theirs.
func Validate(pool *poolv1.VirtualMachinePool) field.ErrorList {
	path := field.NewPath("spec")
	if pool.Spec.VirtualMachineTemplate == nil {
		return field.ErrorList{field.Required(path.Child("virtualMachineTemplate"), "missing virtual machine template.")}
	}
	var errs field.ErrorList
	if replicas := pool.Spec.Replicas; replicas != nil && *replicas < 0 {
		errs = append(errs, field.Invalid(path.Child("replicas"), *replicas, "must be greater than or equal to 0"))
	}
	errs = append(errs, selector(pool, path.Child("selector"))...)
	errs = append(errs, maxUnavailable(pool.Spec.MaxUnavailable, path.Child("maxUnavailable"))...)
	errs = append(errs, scaleIn(pool.Spec.ScaleInStrategy, path.Child("scaleInStrategy"))...)
	errs = append(errs, autohealing(pool.Spec.Autohealing, path.Child("autohealing"))...)
	return append(errs, update(pool.Spec.UpdateStrategy, path.Child("updateStrategy"))...)
}

// selector checks that the pool would know its own VMs, and nobody else's.
func selector(pool *poolv1.VirtualMachinePool, path *field.Path) field.ErrorList {
	given := pool.Spec.Selector
	parsed, err := metav1.LabelSelectorAsSelector(given)
	switch {
	case err != nil:
		return field.ErrorList{field.Invalid(path, metav1.FormatLabelSelector(given), err.Error())}
	case given != nil && parsed.Empty():
		return field.ErrorList{field.Invalid(path, metav1.FormatLabelSelector(given), "an empty selector matches every virtual machine of the namespace; select by a label of the template")}
	case !parsed.Matches(labels.Set(pool.Spec.VirtualMachineTemplate.ObjectMeta.Labels)):
		return field.ErrorList{field.Invalid(path, metav1.FormatLabelSelector(given), "selector does not match labels.")}
	}
	return nil
}

func maxUnavailable(given *intstr.IntOrString, path *field.Path) field.ErrorList {
	if given == nil {
		return nil
	}
	if scaled, err := intstr.GetScaledValueFromIntOrPercent(given, 100, false); err != nil || scaled < 0 {
		return field.ErrorList{field.Invalid(path, given.String(), `must be a number of virtual machines, or a percentage such as "25%"`)}
	}
	return nil
}

func scaleIn(strategy *poolv1.VirtualMachinePoolScaleInStrategy, path *field.Path) field.ErrorList {
	if strategy == nil {
		return nil
	}
	errs := one(path, strategy.Unmanaged != nil, strategy.Opportunistic != nil, strategy.Proactive != nil)
	if strategy.Proactive != nil {
		errs = append(errs, policy(strategy.Proactive.SelectionPolicy, path.Child("proactive", "selectionPolicy"))...)
	}
	return errs
}

func update(strategy *poolv1.VirtualMachinePoolUpdateStrategy, path *field.Path) field.ErrorList {
	if strategy == nil {
		return nil
	}
	errs := one(path, strategy.Unmanaged != nil, strategy.Opportunistic != nil, strategy.Proactive != nil)
	if strategy.Proactive != nil {
		errs = append(errs, policy(strategy.Proactive.SelectionPolicy, path.Child("proactive", "selectionPolicy"))...)
	}
	return errs
}

// one checks that no more than one strategy is given: another would mean nothing.
func one(path *field.Path, given ...bool) field.ErrorList {
	count := 0
	for _, g := range given {
		if g {
			count++
		}
	}
	if count > 1 {
		return field.ErrorList{field.Forbidden(path, "unmanaged, opportunistic and proactive are mutually exclusive; keep one of them")}
	}
	return nil
}

func policy(given *poolv1.VirtualMachinePoolSelectionPolicy, path *field.Path) field.ErrorList {
	if given == nil || given.Selectors == nil {
		return nil
	}
	var errs field.ErrorList
	if labels := given.Selectors.LabelSelector; labels != nil {
		if _, err := metav1.LabelSelectorAsSelector(labels); err != nil {
			errs = append(errs, field.Invalid(path.Child("selectors", "labelSelector"), metav1.FormatLabelSelector(labels), err.Error()))
		}
	}
	if nodes := given.Selectors.NodeSelectorRequirementMatcher; nodes != nil {
		for i, one := range *nodes {
			if err := controller.CheckRequirement(one); err != nil {
				errs = append(errs, field.Invalid(path.Child("selectors", "nodeSelectorRequirementMatcher").Index(i), one.Key, err.Error()))
			}
		}
	}
	return errs
}

// autohealing checks that the pool would replace no VM before it has failed.
func autohealing(given *poolv1.VirtualMachinePoolAutohealingStrategy, path *field.Path) field.ErrorList {
	if given == nil {
		return nil
	}
	var errs field.ErrorList
	if starts := given.StartUpFailureThreshold; starts != nil && *starts < 1 {
		errs = append(errs, field.Invalid(path.Child("startUpFailureThreshold"), *starts, "must be greater than or equal to 1"))
	}
	if after := given.MinFailingToStartDuration; after != nil && after.Duration < 0 {
		errs = append(errs, field.Invalid(path.Child("minFailingToStartDuration"), after.Duration.String(), `must not be negative; give a duration such as "5m"`))
	}
	return errs
}
