// Package backup validates VirtualMachineBackups and VirtualMachineBackupTrackers at admission.
package backup

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"
	backupv1 "kubevirt.io/api/backup/v1alpha1"
	virtv1 "kubevirt.io/api/core/v1"

	"github.com/slipway-vm/slipway/controllers/featuregate"
	"github.com/slipway-vm/slipway/internal/supported"
)

// Immutable says that a spec does not change, in the field's words.
const Immutable = "spec is immutable after creation"

// kinds are what can be backed up, and by what, with their API groups.
var kinds = map[string]string{
	"VirtualMachine":              virtv1.SchemeGroupVersion.Group,
	"VirtualMachineBackupTracker": backupv1.SchemeGroupVersion.Group,
}

// Closed refuses new objects where kv leaves the feature gate off.
func Closed(kv *virtv1.KubeVirt) field.ErrorList {
	if featuregate.On(kv, featuregate.IncrementalBackup) {
		return nil
	}
	return field.ErrorList{field.Forbidden(field.NewPath("spec"), "IncrementalBackup feature gate not enabled; "+
		"an administrator adds it to spec.configuration.developerConfiguration.featureGates of the KubeVirt object")}
}

// Validate returns what is wrong with a new backup, which raw is as JSON has it.
func Validate(backup *backupv1.VirtualMachineBackup, raw map[string]any) field.ErrorList {
	path := field.NewPath("spec")
	if ptr.Deref(backup.Spec.Mode, "") == backupv1.PullMode {
		return field.ErrorList{field.NotSupported(path.Child("mode"), backupv1.PullMode, []backupv1.BackupMode{backupv1.PushMode}), field.Forbidden(path.Child("mode"),
			"backups are not served to be pulled yet; leave mode out, and the backup is written to the claim of spec.pvcName, from where a VirtualMachineExport serves it")}
	}
	errs := supported.Unsupported(supported.Backup, raw)
	errs = append(errs, source(&backup.Spec.Source, path.Child("source"), "VirtualMachine", "VirtualMachineBackupTracker")...)
	errs = append(errs, claim(backup.Spec.PvcName, path.Child("pvcName"))...)
	// The backup's name is in those of files, with the volume's.
	if most := 100; len(backup.Name) > most {
		errs = append(errs, field.TooLong(field.NewPath("metadata", "name"), backup.Name, most))
	}
	return errs
}

// ValidateTracker returns what is wrong with a new tracker, which raw is as JSON has it.
func ValidateTracker(tracker *backupv1.VirtualMachineBackupTracker, raw map[string]any) field.ErrorList {
	errs := supported.Unsupported(supported.BackupTracker, raw)
	return append(errs, source(&tracker.Spec.Source, field.NewPath("spec", "source"), "VirtualMachine")...)
}

// ValidateUpdate returns what is wrong with a change of a spec, of either kind.
func ValidateUpdate(old, spec any) field.ErrorList {
	if equality.Semantic.DeepEqual(old, spec) {
		return nil
	}
	return field.ErrorList{field.Forbidden(field.NewPath("spec"), Immutable)}
}

// source refuses a reference to anything but one of allowed.
func source(ref *corev1.TypedLocalObjectReference, path *field.Path, allowed ...string) field.ErrorList {
	group := ptr.Deref(ref.APIGroup, "")
	switch {
	case !slices.Contains(allowed, ref.Kind):
		return field.ErrorList{field.NotSupported(path.Child("kind"), ref.Kind, allowed)}
	case group != kinds[ref.Kind]:
		return field.ErrorList{field.Invalid(path.Child("apiGroup"), group, fmt.Sprintf("%s is of %s", ref.Kind, kinds[ref.Kind]))}
	case ref.Name == "":
		return field.ErrorList{field.Required(path.Child("name"), "name is required")}
	}
	return nil
}

func claim(name *string, path *field.Path) field.ErrorList {
	if ptr.Deref(name, "") == "" {
		return field.ErrorList{field.Required(path, "pvcName is required")}
	}
	var errs field.ErrorList
	for _, problem := range validation.IsDNS1123Subdomain(*name) {
		errs = append(errs, field.Invalid(path, *name, problem))
	}
	return errs
}
