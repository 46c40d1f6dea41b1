package hyperconverged

import (
	"errors"
	"maps"
	"slices"
	"strings"

	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"

	"github.com/slipway-vm/slipway/controllers/admission/dataimportcron"
	hcov1 "github.com/slipway-vm/slipway/internal/api/hco/v1"
	"github.com/slipway-vm/slipway/internal/names"
	"github.com/slipway-vm/slipway/internal/supported"
)

// checkSources says what is wrong with the boot sources that hco asks for.
func checkSources(hco *hcov1.HyperConverged) error {
	asked, path := hco.Spec.WorkloadSources, field.NewPath("spec", "workloadSources")
	errs := checkGolden(ptr.Deref(asked.CommonBootImageNamespace, ""), hco.Namespace, path.Child("commonBootImageNamespace"))
	seen := map[string]bool{}
	for i := range asked.DataImportCronTemplates {
		template, at := &asked.DataImportCronTemplates[i], path.Child("dataImportCronTemplates").Index(i)
		if seen[template.Name] {
			errs = append(errs, field.Duplicate(at.Child("metadata", "name"), template.Name))
		}
		seen[template.Name] = true
		errs = append(errs, checkTemplate(template, at)...)
	}
	if len(errs) > 0 {
		return errors.New(errs.ToAggregate().Error())
	}
	return nil
}

// checkGolden says what is wrong with a namespace in which everyone gets rights; own is Slipway's.
func checkGolden(name, own string, at *field.Path) field.ErrorList {
	if name != "" && (name == own || strings.HasPrefix(name, "kube-") || strings.HasPrefix(name, "openshift-")) {
		return field.ErrorList{field.Invalid(at, name, "everyone who is logged in may see and clone the disks in it, so it is none of the system's or of Slipway itself; name one for boot images only")}
	}
	return checkNamespace(name, at)
}

func checkNamespace(name string, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	if name == "" {
		return nil
	}
	for _, message := range validation.IsDNS1123Label(name) {
		errs = append(errs, field.Invalid(at, name, message))
	}
	return errs
}

// written are the beginnings of the names of annotations that Slipway writes onto DataImportCrons. A template with one
// would be written in turn with it, and one of a digest would lead its DataSource back to that for ever.
var written = []string{"cdi.kubevirt.io/storage.import.", names.Domain}

// checkWritten refuses annotations of a template that are not its own to say.
func checkWritten(annotations map[string]string, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	for _, name := range slices.Sorted(maps.Keys(annotations)) {
		if slices.ContainsFunc(written, func(beginning string) bool { return strings.HasPrefix(name, beginning) }) {
			errs = append(errs, field.Forbidden(at.Key(name), "Slipway writes this annotation of a DataImportCron itself; remove it from the template"))
		}
	}
	return errs
}

// checkTemplate says what is wrong with one template: what the DataImportCron would be refused for, and more.
func checkTemplate(template *hcov1.DataImportCronTemplate, at *field.Path) field.ErrorList {
	metadata := at.Child("metadata")
	errs := checkNamespace(template.Namespace, metadata.Child("namespace"))
	for _, message := range validation.IsDNS1123Subdomain(template.Name) {
		errs = append(errs, field.Invalid(metadata.Child("name"), template.Name, message))
	}
	errs = append(errs, metav1validation.ValidateLabels(template.Labels, metadata.Child("labels"))...)
	errs = append(errs, apivalidation.ValidateAnnotations(template.Annotations, metadata.Child("annotations"))...)
	errs = append(errs, checkWritten(template.Annotations, metadata.Child("annotations"))...)
	said, found := template.Annotations[hcov1.AnnotationTemplateEnable]
	if found && !strings.EqualFold(said, "true") && !strings.EqualFold(said, "false") {
		return append(errs, field.NotSupported(metadata.Child("annotations").Key(hcov1.AnnotationTemplateEnable), said, []string{"true", "false"}))
	}
	if !counts(template) {
		return errs
	}
	if template.Spec == nil {
		return append(errs, field.Required(at.Child("spec"),
			"write the whole spec of the DataImportCron; to leave a common boot image out, set annotation "+hcov1.AnnotationTemplateEnable+`: "false"`))
	}
	cron := &cdiv1.DataImportCron{ObjectMeta: metav1.ObjectMeta{Name: template.Name}, Spec: *template.Spec}
	for _, problem := range append(supported.OfObject(supported.DataImportCron, cron), dataimportcron.Validate(cron)...) {
		problem.Field = at.String() + "." + problem.Field
		errs = append(errs, problem)
	}
	return errs
}
