package templaterequest_test

import (
	"strings"
	"testing"

	"github.com/slipway-vm/slipway/controllers/admission/templaterequest"
	vmtemplatev1beta1 "github.com/slipway-vm/slipway/internal/api/virtualmachinetemplate/v1beta1"
)

func TestARequestSaysWhatItMeans(t *testing.T) {
	type spec = vmtemplatev1beta1.VirtualMachineTemplateRequestSpec
	for name, c := range map[string]struct {
		change func(*spec)
		want   string
	}{
		"nothing special":  {func(*spec) {}, ""},
		"a name and more":  {func(s *spec) { s.TemplateName, s.TemplateLabels = "golden.1", map[string]string{"os": "debian"} }, ""},
		"no namespace":     {func(s *spec) { s.VirtualMachineRef.Namespace = "" }, "spec.virtualMachineRef.namespace: Required value: virtualMachineRef.namespace cannot be empty"},
		"no VM":            {func(s *spec) { s.VirtualMachineRef.Name = "" }, "spec.virtualMachineRef.name: Required value: virtualMachineRef.name cannot be empty"},
		"no namespace's":   {func(s *spec) { s.VirtualMachineRef.Namespace = "a/b" }, `spec.virtualMachineRef.namespace: Invalid value: "a/b"`},
		"no VM's name":     {func(s *spec) { s.VirtualMachineRef.Name = "A b" }, `spec.virtualMachineRef.name: Invalid value: "A b"`},
		"no template's":    {func(s *spec) { s.TemplateName = "A b" }, `spec.templateName: Invalid value: "A b"`},
		"no label's key":   {func(s *spec) { s.TemplateLabels = map[string]string{"a b": ""} }, `spec.templateLabels: Invalid value: "a b"`},
		"no label's value": {func(s *spec) { s.TemplateLabels = map[string]string{"os": "a b"} }, `spec.templateLabels: Invalid value: "a b"`},
		"the own label": {
			func(s *spec) { s.TemplateLabels = map[string]string{"template.kubevirt.io/RequestUID": "x"} },
			"spec.templateLabels[template.kubevirt.io/RequestUID]: Forbidden: is the label by which",
		},
	} {
		t.Run(name, func(t *testing.T) {
			request := &vmtemplatev1beta1.VirtualMachineTemplateRequest{}
			request.Spec.VirtualMachineRef = vmtemplatev1beta1.VirtualMachineReference{Namespace: "builds", Name: "web"}
			c.change(&request.Spec)
			err := templaterequest.Validate(request).ToAggregate()
			if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want %q", err, c.want)
			}
		})
	}
}
