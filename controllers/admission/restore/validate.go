// Package restore validates VirtualMachineRestores at admission.
package restore

import (
	"fmt"
	"slices"
	"strings"

	jsonpatch "github.com/evanphx/json-patch/v5"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"
	snapshotv1 "kubevirt.io/api/snapshot/v1beta1"

	"github.com/slipway-vm/slipway/controllers/admission/snapshot"
)

// Validate returns what is wrong with restore, where others are the restores of its namespace.
func Validate(restore *snapshotv1.VirtualMachineRestore, others []snapshotv1.VirtualMachineRestore) field.ErrorList {
	path := field.NewPath("spec")
	errs := snapshot.Machine(&restore.Spec.Target, path.Child("target"))
	if restore.Spec.VirtualMachineSnapshotName == "" {
		errs = append(errs, field.Required(path.Child("virtualMachineSnapshotName"), "the name of a VirtualMachineSnapshot of this namespace"))
	}
	for i, patch := range restore.Spec.Patches {
		if why := WrongPatch(patch); why != "" {
			errs = append(errs, field.Invalid(path.Child("patches").Index(i), patch, why))
		}
	}
	errs = append(errs, overrides(restore.Spec.VolumeRestoreOverrides, path.Child("volumeRestoreOverrides"))...)
	for i := range others {
		if busy(&others[i], restore) {
			errs = append(errs, field.Forbidden(path.Child("target"), fmt.Sprintf("VirtualMachineRestore %q in progress", others[i].Name)))
		}
	}
	return errs
}

// ValidateUpdate returns what is wrong with a change of old.
func ValidateUpdate(old, restore *snapshotv1.VirtualMachineRestore) field.ErrorList {
	if equality.Semantic.DeepEqual(old.Spec, restore.Spec) {
		return nil
	}
	return field.ErrorList{field.Forbidden(field.NewPath("spec"), snapshot.Immutable)}
}

// busy says whether other works on restore's target.
func busy(other, restore *snapshotv1.VirtualMachineRestore) bool {
	if other.Name == restore.Name || !equality.Semantic.DeepEqual(other.Spec.Target, restore.Spec.Target) {
		return false
	}
	if other.Status == nil {
		return true
	}
	failed := slices.ContainsFunc(other.Status.Conditions, func(c snapshotv1.Condition) bool {
		return c.Type == snapshotv1.ConditionFailure && c.Status == "True"
	})
	return !failed && !ptr.Deref(other.Status.Complete, false)
}

// patched is where a VM may be patched: not what it is known by.
var patched = []string{"/spec/", "/metadata/labels/", "/metadata/annotations/"}

// WrongPatch says what is wrong with one JSON patch of a new VM, "" for nothing.
func WrongPatch(text string) string {
	places, err := touched(text)
	if err != nil {
		return fmt.Sprintf("patch format is not valid - one JSON patch expected, such as %s: %v", `{"op": "replace", "path": "/spec/runStrategy", "value": "Manual"}`, err)
	}
	for _, at := range places {
		if !slices.ContainsFunc(patched, func(prefix string) bool { return strings.HasPrefix(at, prefix) }) {
			return fmt.Sprintf("patching is valid only for elements under /spec/ only: %s; labels and annotations can be patched one by one", at)
		}
	}
	return ""
}

// touched are the places that one JSON patch reads or writes, as they are read when it is applied.
func touched(text string) ([]string, error) {
	decoded, err := jsonpatch.DecodePatch([]byte("[" + text + "]"))
	if err != nil {
		return nil, err //nolint:wrapcheck // WrongPatch does
	}
	if len(decoded) != 1 {
		return nil, fmt.Errorf("there are %d", len(decoded))
	}
	path, err := decoded[0].Path()
	if err != nil {
		return nil, err //nolint:wrapcheck // WrongPatch does
	}
	if from, err := decoded[0].From(); err == nil {
		return []string{path, from}, nil
	}
	return []string{path}, nil
}

func overrides(given []snapshotv1.VolumeRestoreOverride, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	seen := map[string]bool{}
	for i, override := range given {
		at := path.Index(i)
		switch {
		case override.VolumeName == "":
			errs = append(errs, field.Required(at.Child("volumeName"), "must provide a volume name"))
		case seen[override.VolumeName]:
			errs = append(errs, field.Duplicate(at.Child("volumeName"), override.VolumeName))
		case override.RestoreName == "" && override.Annotations == nil && override.Labels == nil:
			errs = append(errs, field.Required(at, "must provide at least one overriden field")) //nolint:misspell // the field's own words
		}
		if override.RestoreName != "" {
			for _, problem := range validation.IsDNS1123Subdomain(override.RestoreName) {
				errs = append(errs, field.Invalid(at.Child("restoreName"), override.RestoreName, problem))
			}
		}
		seen[override.VolumeName] = true
	}
	return errs
}
