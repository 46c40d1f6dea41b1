// Package templaterequest validates VirtualMachineTemplateRequests at admission.
package templaterequest

import (
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	vmtemplatev1beta1 "github.com/slipway-vm/slipway/internal/api/virtualmachinetemplate/v1beta1"
)

// Validate returns what is wrong with a new request. It cannot be changed.
func Validate(request *vmtemplatev1beta1.VirtualMachineTemplateRequest) field.ErrorList {
	spec, path := &request.Spec, field.NewPath("spec")
	vm := path.Child("virtualMachineRef")
	errs := named(spec.VirtualMachineRef.Namespace, vm.Child("namespace"), validation.IsDNS1123Label)
	errs = append(errs, named(spec.VirtualMachineRef.Name, vm.Child("name"), validation.IsDNS1123Subdomain)...)
	if spec.TemplateName != "" {
		errs = append(errs, named(spec.TemplateName, path.Child("templateName"), validation.IsDNS1123Subdomain)...)
	}
	labels := path.Child("templateLabels")
	errs = append(errs, metav1validation.ValidateLabels(spec.TemplateLabels, labels)...)
	if _, taken := spec.TemplateLabels[vmtemplatev1beta1.LabelRequest]; taken {
		errs = append(errs, field.Forbidden(labels.Key(vmtemplatev1beta1.LabelRequest), "is the label by which the template is known to be the request's; leave it out"))
	}
	return errs
}

// named returns what is wrong with a name that there must be.
func named(name string, path *field.Path, problems func(string) []string) field.ErrorList {
	if name == "" {
		return field.ErrorList{field.Required(path, path.String()[len("spec."):]+" cannot be empty")}
	}
	var errs field.ErrorList
	for _, problem := range problems(name) {
		errs = append(errs, field.Invalid(path, name, problem))
	}
	return errs
}
