// Package export validates VirtualMachineExports at admission.
package export

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"
	virtv1 "kubevirt.io/api/core/v1"
	exportv1 "kubevirt.io/api/export/v1beta1"
	snapshotv1 "kubevirt.io/api/snapshot/v1beta1"

	"github.com/slipway-vm/slipway/controllers/admission/snapshot"
)

// groups are the API groups of the kinds that can be exported.
var groups = map[string]string{
	"PersistentVolumeClaim":  corev1.SchemeGroupVersion.Group,
	"VirtualMachine":         virtv1.SchemeGroupVersion.Group,
	"VirtualMachineSnapshot": snapshotv1.SchemeGroupVersion.Group,
}

// Validate returns what is wrong with export.
func Validate(export *exportv1.VirtualMachineExport) field.ErrorList {
	path := field.NewPath("spec")
	errs := source(&export.Spec.Source, path.Child("source"))
	if name := export.Spec.TokenSecretRef; name != nil && *name != "" {
		for _, problem := range validation.IsDNS1123Subdomain(*name) {
			errs = append(errs, field.Invalid(path.Child("tokenSecretRef"), *name, problem))
		}
	}
	if lifetime := export.Spec.TTLDuration; lifetime != nil && lifetime.Duration <= 0 {
		errs = append(errs, field.Invalid(path.Child("ttlDuration"), lifetime.Duration.String(), "must be more than 0s, such as 30m; two hours when left out"))
	}
	return errs
}

func source(ref *corev1.TypedLocalObjectReference, path *field.Path) field.ErrorList {
	kinds := make([]string, 0, len(groups))
	for kind := range groups {
		kinds = append(kinds, kind)
	}
	slices.Sort(kinds)
	group, known := groups[ref.Kind]
	switch {
	case !known:
		return field.ErrorList{field.NotSupported(path.Child("kind"), ref.Kind, kinds)}
	case ptr.Deref(ref.APIGroup, "") != group && group == "":
		return field.ErrorList{field.Invalid(path.Child("apiGroup"), *ref.APIGroup, `must be "" for a `+ref.Kind+", or left out")}
	case ptr.Deref(ref.APIGroup, "") != group:
		return field.ErrorList{field.Invalid(path.Child("apiGroup"), ptr.Deref(ref.APIGroup, ""), "must be "+group+" for a "+ref.Kind)}
	case ref.Name == "":
		return field.ErrorList{field.Required(path.Child("name"), "the name of a "+ref.Kind+" of this namespace")}
	}
	return nil
}

// ValidateUpdate returns what is wrong with a change of old.
func ValidateUpdate(old, export *exportv1.VirtualMachineExport) field.ErrorList {
	if equality.Semantic.DeepEqual(old.Spec, export.Spec) {
		return nil
	}
	return field.ErrorList{field.Forbidden(field.NewPath("spec"), snapshot.Immutable)}
}
