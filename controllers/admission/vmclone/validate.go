// Package vmclone validates VirtualMachineClones at admission.
package vmclone

import (
	"encoding/json"
	"fmt"
	"maps"
	"net"
	"regexp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	clonev1 "kubevirt.io/api/clone/v1beta1"
	virtv1 "kubevirt.io/api/core/v1"
	snapshotv1 "kubevirt.io/api/snapshot/v1beta1"

	"github.com/slipway-vm/slipway/controllers/admission/restore"
	"github.com/slipway-vm/slipway/controllers/admission/snapshot"
)

// kinds are what can be cloned, with their API groups.
var kinds = map[string]string{
	"VirtualMachine":         virtv1.SchemeGroupVersion.Group,
	"VirtualMachineSnapshot": snapshotv1.SchemeGroupVersion.Group,
}

// keys are what labels and annotations are named with.
var keys = regexp.MustCompile(`^[A-Za-z0-9_./-]*$`)

// Validate returns what is wrong with clone.
func Validate(clone *clonev1.VirtualMachineClone) field.ErrorList {
	path := field.NewPath("spec")
	spec := &clone.Spec
	errs := source(spec.Source, path.Child("source"))
	errs = append(errs, target(spec, path.Child("target"))...)
	for _, list := range []struct {
		filters []string
		at      *field.Path
	}{
		{spec.LabelFilters, path.Child("labelFilters")},
		{spec.AnnotationFilters, path.Child("annotationFilters")},
		{spec.Template.LabelFilters, path.Child("template", "labelFilters")},
		{spec.Template.AnnotationFilters, path.Child("template", "annotationFilters")},
	} {
		for i, filter := range list.filters {
			if why := wrongFilter(filter); why != "" {
				errs = append(errs, field.Invalid(list.at.Index(i), filter, why))
			}
		}
	}
	errs = append(errs, addresses(spec.NewMacAddresses, path.Child("newMacAddresses"))...)
	for i, patch := range spec.Patches {
		why := ""
		if !json.Valid([]byte(patch)) {
			why = fmt.Sprintf("patch is not valid JSON (%s)", patch)
		} else {
			why = restore.WrongPatch(patch)
		}
		if why != "" {
			errs = append(errs, field.Invalid(path.Child("patches").Index(i), patch, why))
		}
	}
	return errs
}

// ValidateUpdate returns what is wrong with a change of old.
func ValidateUpdate(old, clone *clonev1.VirtualMachineClone) field.ErrorList {
	if equality.Semantic.DeepEqual(old.Spec, clone.Spec) {
		return nil
	}
	return field.ErrorList{field.Forbidden(field.NewPath("spec"), snapshot.Immutable)}
}

func source(ref *corev1.TypedLocalObjectReference, path *field.Path) field.ErrorList {
	switch {
	case ref == nil:
		return field.ErrorList{field.Required(path, "Source cannot be nil")}
	case ref.APIGroup == nil || *ref.APIGroup == "":
		return field.ErrorList{field.Required(path.Child("apiGroup"), "Source's APIGroup cannot be empty")}
	case kinds[ref.Kind] == "":
		return field.ErrorList{field.Invalid(path.Child("kind"), ref.Kind, "Source kind is not supported; VirtualMachine and VirtualMachineSnapshot are")}
	case *ref.APIGroup != kinds[ref.Kind]:
		return field.ErrorList{field.Invalid(path.Child("apiGroup"), *ref.APIGroup, fmt.Sprintf("%s is of %s", ref.Kind, kinds[ref.Kind]))}
	case ref.Name == "":
		return field.ErrorList{field.Required(path.Child("name"), "Source's name cannot be empty")}
	}
	return nil
}

func target(spec *clonev1.VirtualMachineCloneSpec, path *field.Path) field.ErrorList {
	ref := spec.Target
	if ref == nil {
		return nil
	}
	var errs field.ErrorList
	if ref.Kind != "VirtualMachine" {
		errs = append(errs, field.Invalid(path.Child("kind"), ref.Kind, "Target kind is not supported; VirtualMachine is"))
	} else if ref.APIGroup != nil && *ref.APIGroup != kinds[ref.Kind] {
		errs = append(errs, field.Invalid(path.Child("apiGroup"), *ref.APIGroup, fmt.Sprintf("%s is of %s", ref.Kind, kinds[ref.Kind])))
	}
	if ref.Name == "" {
		return errs
	}
	if spec.Source != nil && spec.Source.Kind == ref.Kind && spec.Source.Name == ref.Name {
		errs = append(errs, field.Invalid(path.Child("name"), ref.Name, "Target name cannot be equal to source name when both are VirtualMachines"))
	}
	for _, problem := range validation.IsDNS1123Subdomain(ref.Name) {
		errs = append(errs, field.Invalid(path.Child("name"), ref.Name, problem))
	}
	return errs
}

// wrongFilter says what is wrong with a filter of labels or annotations, "" for nothing.
func wrongFilter(filter string) string {
	const form = "cannot contain a %s character (%s); FilterRules: %s"
	key := strings.TrimSuffix(strings.TrimPrefix(filter, "!"), "*")
	switch {
	case filter == "":
		return "is empty; write a key, the beginning of keys with * after it, or * for all"
	case filter == "!":
		return "a negation character is not a valid filter"
	case strings.Contains(key, "!"):
		return fmt.Sprintf(form, "negation", "!", "NegationChar can be only used at the beginning of the filter")
	case strings.Contains(key, "*"):
		return fmt.Sprintf(form, "wildcard", "*", "WildcardChar can be only at the end of the filter")
	case !keys.MatchString(key):
		return "is no key and no beginning of one; a filter is not a regular expression"
	}
	return ""
}

func addresses(given map[string]string, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	taken := map[string]string{}
	for _, name := range slices.Sorted(maps.Keys(given)) {
		text, at := given[name], path.Child(name)
		if text == "" {
			continue
		}
		mac, err := net.ParseMAC(text)
		switch {
		case err != nil || len(mac) != 6:
			errs = append(errs, field.Invalid(at, text, fmt.Sprintf("interface %s has malformed MAC address (%s).", name, text)))
		case mac[0]&1 != 0:
			errs = append(errs, field.Invalid(at, text, "is a multicast address"))
		case taken[mac.String()] != "":
			errs = append(errs, field.Invalid(at, text, fmt.Sprintf("is the address of interface %s, too", taken[mac.String()])))
		}
		taken[mac.String()] = name
	}
	return errs
}
