// Package replicaset validates VirtualMachineInstanceReplicaSets at admission.
package replicaset

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/validation/field"
	virtv1 "kubevirt.io/api/core/v1"

	admitvmi "github.com/slipway-vm/slipway/controllers/admission/virtualmachineinstance"
	"github.com/slipway-vm/slipway/controllers/virtualmachineinstance/defaults"
)

// Validate returns what is wrong with set. Its template is checked as the instance that
// the set would make of it in the cluster.
func Validate(set *virtv1.VirtualMachineInstanceReplicaSet, cluster defaults.Cluster) field.ErrorList {
	path := field.NewPath("spec")
	if set.Spec.Template == nil {
		return field.ErrorList{field.Required(path.Child("template"), "missing virtual machine template.")}
	}
	vmi := &virtv1.VirtualMachineInstance{Spec: *set.Spec.Template.Spec.DeepCopy()}
	vmi.Namespace = set.Namespace
	defaults.Set(vmi, cluster)
	errs := admitvmi.Validate(&vmi.Spec, path.Child("template", "spec"))
	errs = append(errs, admitvmi.Allowed(&vmi.Spec, cluster, path.Child("template", "spec"))...)
	if replicas := set.Spec.Replicas; replicas != nil && *replicas < 0 {
		errs = append(errs, field.Invalid(path.Child("replicas"), *replicas, "must be greater than or equal to 0"))
	}
	return append(errs, selector(set, path.Child("selector"))...)
}

// selector checks that the set would know its own instances, and nobody else's.
func selector(set *virtv1.VirtualMachineInstanceReplicaSet, path *field.Path) field.ErrorList {
	given := set.Spec.Selector
	parsed, err := metav1.LabelSelectorAsSelector(given)
	switch {
	case err != nil:
		return field.ErrorList{field.Invalid(path, metav1.FormatLabelSelector(given), err.Error())}
	case given != nil && parsed.Empty():
		return field.ErrorList{field.Invalid(path, metav1.FormatLabelSelector(given), "an empty selector matches every virtual machine instance of the namespace; select by a label of the template")}
	case !parsed.Matches(labels.Set(set.Spec.Template.ObjectMeta.Labels)):
		return field.ErrorList{field.Invalid(path, metav1.FormatLabelSelector(given), "selector does not match labels.")}
	}
	return nil
}
