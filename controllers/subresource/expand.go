package subresource

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	virtv1 "kubevirt.io/api/core/v1"

	"github.com/slipway-vm/slipway/controllers/instancetype"
	"github.com/slipway-vm/slipway/controllers/virtualmachineinstance/defaults"
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

// expand puts what vm's instance type and preference say into its template, and takes the
// references to them out, so that the result can be used as it is.
func (s *Server) expand(ctx context.Context, vm *virtv1.VirtualMachine) error {
	vm.TypeMeta = metav1.TypeMeta{APIVersion: virtv1.GroupVersion.String(), Kind: virtv1.VirtualMachineGroupVersionKind.Kind}
	if vm.Spec.Instancetype == nil && vm.Spec.Preference == nil {
		return nil
	}
	it, preference, err := s.resolver.References(ctx, vm)
	if err != nil {
		return fmt.Errorf("finding what the virtual machine refers to: %w", err)
	}
	itSpec, err := s.resolver.Instancetype(ctx, vm.Namespace, it)
	if err != nil {
		return fmt.Errorf("finding the instance type: %w", err)
	}
	preferenceSpec, err := s.resolver.Preference(ctx, vm.Namespace, preference)
	if err != nil {
		return fmt.Errorf("finding the preference: %w", err)
	}
	vmi := &virtv1.VirtualMachineInstance{
		ObjectMeta: metav1.ObjectMeta{Annotations: vm.Spec.Template.ObjectMeta.Annotations, Labels: vm.Spec.Template.ObjectMeta.Labels},
		Spec:       vm.Spec.Template.Spec,
	}
	defaults.Disks(&vmi.Spec)
	defaults.Interface(&vmi.Spec)
	if errs := instancetype.Apply(vmi, itSpec, preferenceSpec, field.NewPath("spec", "template", "spec")); len(errs) > 0 {
		return fmt.Errorf("cannot expand instancetype to VM: %w", errs.ToAggregate())
	}
	vm.Spec.Template.ObjectMeta.Annotations, vm.Spec.Template.ObjectMeta.Labels = vmi.Annotations, vmi.Labels
	vm.Spec.Template.Spec = vmi.Spec
	vm.Spec.Instancetype, vm.Spec.Preference = nil, nil
	return nil
}
