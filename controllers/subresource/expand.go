package subresource

import (
	"context"
	"encoding/json"
	"io"
	"net/http"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	virtv1 "kubevirt.io/api/core/v1"

	"github.com/slipway-vm/slipway/internal/supported"
)

// expandStored shows a VM with what its instance type and preference say, in its own fields.
func (s *Server) expandStored(w http.ResponseWriter, r *http.Request) error {
	vm, err := s.virtualMachine(r.Context(), key(r))
	if err != nil {
		return err
	}
	if err := s.expand(r.Context(), vm); err != nil {
		return err
	}
	write(w, r, http.StatusOK, vm)
	return nil
}

// expandSent is expandStored for a VM that the client sends.
func (s *Server) expandSent(w http.ResponseWriter, r *http.Request) error {
	content, err := io.ReadAll(io.LimitReader(r.Body, maxBody))
	if err != nil {
		return badRequest("%v", err)
	}
	if len(content) == 0 {
		return badRequest("empty request body")
	}
	var raw map[string]any
	if err := json.Unmarshal(content, &raw); err != nil {
		return badRequest(unreadableBody, err)
	}
	vm := &virtv1.VirtualMachine{}
	if err := json.Unmarshal(content, vm); err != nil {
		return badRequest(unreadableBody, err)
	}
	if errs := supported.Unsupported(supported.VirtualMachine, raw); len(errs) > 0 {
		return invalid(errs)
	}
	namespace := r.PathValue("namespace")
	switch {
	case vm.Spec.Template == nil:
		return invalid(field.ErrorList{field.Required(field.NewPath("spec", "template"), "")})
	case vm.Namespace != "" && vm.Namespace != namespace:
		return badRequest("VM namespace must be empty or %s", namespace)
	}
	vm.Namespace = namespace
	if err := s.expand(r.Context(), vm); err != nil {
		return badRequest("%v", err)
	}
	write(w, r, http.StatusOK, vm)
	return nil
}

func invalid(errs field.ErrorList) error {
	status := apierrors.NewBadRequest(notAValidMachine)
	status.ErrStatus.Details = &metav1.StatusDetails{}
	for _, err := range errs {
		status.ErrStatus.Details.Causes = append(status.ErrStatus.Details.Causes, metav1.StatusCause{Field: err.Field, Message: err.Error()})
	}
	return refuse(status)
}

// expand puts what vm's instance type and preference say into its template.
func (s *Server) expand(ctx context.Context, vm *virtv1.VirtualMachine) error {
	vm.TypeMeta = metav1.TypeMeta{APIVersion: virtv1.GroupVersion.String(), Kind: virtv1.VirtualMachineGroupVersionKind.Kind}
	return s.resolver.Expand(ctx, vm)
}
