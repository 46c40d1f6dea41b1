// Package dataimportcron validates DataImportCrons at admission.
package dataimportcron

import (
	"reflect"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"

	"github.com/slipway-vm/slipway/controllers/admission/datavolume"
	"github.com/slipway-vm/slipway/internal/importschedule"
)

// maxName is how long the names are at the most that become labels and parts of other names.
const maxName = 63

// Validate returns what is wrong with a new DataImportCron.
func Validate(cron *cdiv1.DataImportCron) field.ErrorList {
	var errs field.ErrorList
	spec, path := &cron.Spec, field.NewPath("spec")
	if len(cron.Name) > maxName {
		errs = append(errs, field.TooLong(field.NewPath("metadata", "name"), cron.Name, maxName))
	}
	if spec.Schedule != "" {
		if _, err := importschedule.Parse(spec.Schedule); err != nil {
			errs = append(errs, field.Invalid(path.Child("schedule"), spec.Schedule, "Illegal cron schedule: "+err.Error()))
		}
	}
	errs = append(errs, dataSource(spec.ManagedDataSource, path.Child("managedDataSource"))...)
	if keep := spec.ImportsToKeep; keep != nil && *keep < 0 {
		errs = append(errs, field.Invalid(path.Child("importsToKeep"), *keep, "Illegal ImportsToKeep value; write how many imports stay, the last one among them"))
	}
	if account := spec.ServiceAccountName; account != nil {
		for _, message := range validation.IsDNS1123Subdomain(*account) {
			errs = append(errs, field.Invalid(path.Child("serviceAccountName"), *account, message+"; name a ServiceAccount of the DataImportCron's namespace"))
		}
	}
	at := path.Child("template", "spec")
	errs = append(errs, source(&spec.Template.Spec, at)...)
	return append(errs, datavolume.Validate(&spec.Template.Spec, at)...)
}

// ValidateUpdate returns what is wrong with changing before into after.
func ValidateUpdate(before, after *cdiv1.DataImportCron) field.ErrorList {
	if reflect.DeepEqual(before.Spec, after.Spec) {
		return nil
	}
	return field.ErrorList{field.Forbidden(field.NewPath("spec"), "Cannot update DataImportCron Spec; delete it and create another: the DataSource and its images stay unless retentionPolicy is None")}
}

func dataSource(name string, at *field.Path) field.ErrorList {
	switch {
	case name == "":
		return field.ErrorList{field.Required(at, "Illegal ManagedDataSource value; name the DataSource")}
	case len(name) > maxName:
		return field.ErrorList{field.TooLong(at, name, maxName)}
	}
	var errs field.ErrorList
	for _, message := range validation.IsDNS1123Subdomain(name) {
		errs = append(errs, field.Invalid(at, name, "Illegal ManagedDataSource value: "+message))
	}
	return errs
}

// source checks that the template's source can be polled.
func source(spec *cdiv1.DataVolumeSpec, path *field.Path) field.ErrorList {
	at := path.Child("source")
	switch from := spec.Source; {
	case spec.SourceRef != nil:
		return field.ErrorList{field.Forbidden(path.Child("sourceRef"), "what it names is not polled; set source.http, source.registry or source.pvc")}
	case from == nil || from.HTTP == nil && from.Registry == nil && from.PVC == nil:
		return field.ErrorList{field.Required(at, "Missing source that can be polled; set http, registry or pvc")}
	case from.Registry == nil:
		return nil
	}
	return registry(spec.Source.Registry, at.Child("registry"))
}

func registry(from *cdiv1.DataVolumeSourceRegistry, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	switch {
	case from.ImageStream != nil: // its name is checked as that of every DataVolume is
	case from.URL == nil:
		errs = append(errs, field.Required(at.Child("url"), "name the image as docker://host/path:tag"))
	case !strings.HasPrefix(*from.URL, "docker://"):
		errs = append(errs, field.Invalid(at.Child("url"), *from.URL, "what is not in a registry is not polled; write docker://host/path:tag"))
	case strings.Contains(*from.URL, "@"):
		errs = append(errs, field.Invalid(at.Child("url"), *from.URL, "an image that is named by its digest never changes; name it by a tag"))
	}
	return errs
}
