// Package storageprofile validates StorageProfiles at admission.
package storageprofile

import (
	"slices"

	"k8s.io/apimachinery/pkg/util/validation/field"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
)

// Validate returns what is wrong with a StorageProfile's spec; path is where it is.
func Validate(spec *cdiv1.StorageProfileSpec, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	if strategy := spec.CloneStrategy; strategy != nil && !slices.Contains(cloneStrategies, *strategy) {
		errs = append(errs, field.NotSupported(path.Child("cloneStrategy"), *strategy, cloneStrategies))
	}
	if format := spec.DataImportCronSourceFormat; format != nil && !slices.Contains(sourceFormats, *format) {
		errs = append(errs, field.NotSupported(path.Child("dataImportCronSourceFormat"), *format, sourceFormats))
	}
	for i := range spec.ClaimPropertySets {
		set, at := &spec.ClaimPropertySets[i], path.Child("claimPropertySets").Index(i)
		if len(set.AccessModes) == 0 {
			errs = append(errs, field.Required(at.Child("accessModes"), "each set names access modes and a volume mode"))
		}
		if set.VolumeMode == nil {
			errs = append(errs, field.Required(at.Child("volumeMode"), "each set names access modes and a volume mode"))
		}
	}
	return errs
}

// What is acted on.
var (
	cloneStrategies = []cdiv1.CDICloneStrategy{cdiv1.CloneStrategyCsiClone, cdiv1.CloneStrategySnapshot, cdiv1.CloneStrategyHostAssisted}
	sourceFormats   = []cdiv1.DataImportCronSourceFormat{cdiv1.DataImportCronSourceFormatPvc, cdiv1.DataImportCronSourceFormatSnapshot}
)
