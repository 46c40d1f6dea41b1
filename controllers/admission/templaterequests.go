package admission

import (
	"context"
	"net/http"

	admissionv1 "k8s.io/api/admission/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/slipway-vm/slipway/controllers/admission/templaterequest"
	vmtemplatev1beta1 "github.com/slipway-vm/slipway/internal/api/virtualmachinetemplate/v1beta1"
)

func (a admitter) templateRequest(_ context.Context, r *review[vmtemplatev1beta1.VirtualMachineTemplateRequest]) (field.ErrorList, error) {
	if r.old != nil || r.object.DeletionTimestamp != nil {
		return nil, nil
	}
	return templaterequest.Validate(r.object), nil
}

// allowedTemplate validates a VirtualMachineTemplateRequest, and asks whether its creator may have what virt-controller makes for it.
func (a admitter) allowedTemplate(ctx context.Context, request admission.Request) admission.Response {
	response := validator(a.templateRequest).Handle(ctx, request)
	if !response.Allowed || request.Operation != admissionv1.Create {
		return response
	}
	r, err := decode[vmtemplatev1beta1.VirtualMachineTemplateRequest](&request)
	if err != nil {
		return undecodable(&request, err)
	}
	r.object.Namespace = request.Namespace
	message, err := a.clones.Template(ctx, r.object, request.UserInfo)
	switch {
	case err != nil:
		return admission.Errored(http.StatusInternalServerError, err)
	case message != "":
		return admission.Denied(message)
	}
	return response
}
