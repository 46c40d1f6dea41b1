package hyperconverged

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	admissionv1 "k8s.io/api/admission/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	virtv1 "kubevirt.io/api/core/v1"
	poolv1 "kubevirt.io/api/pool/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/slipway-vm/slipway/controllers/kubevirtconfig"
	"github.com/slipway-vm/slipway/internal/names"
)

// machines are the kinds whose objects keep the KubeVirt object from being deleted.
var machines = []schema.GroupVersionKind{
	virtv1.VirtualMachineInstanceGroupVersionKind,
	virtv1.VirtualMachineGroupVersionKind,
	virtv1.VirtualMachineInstanceReplicaSetGroupVersionKind,
	poolv1.SchemeGroupVersion.WithKind(poolv1.VirtualMachinePoolKind),
}

// kubeVirtValidator admits the KubeVirt object when Slipway acts on what it says, and its deletion when no virtual
// machine is left. Of other installations' objects it says nothing: the HyperConverged object's condition tells of them.
type kubeVirtValidator struct {
	reader client.Reader
	judge  judge
}

// Handle answers one admission request.
func (v *kubeVirtValidator) Handle(ctx context.Context, request admission.Request) admission.Response {
	if request.Namespace != v.judge.options.Namespace || request.Name != names.KubeVirtName {
		return admission.Allowed("")
	}
	now, err := kubeVirtOf(request.Object.Raw)
	if err != nil {
		return admission.Errored(http.StatusBadRequest, err)
	}
	before, err := kubeVirtOf(request.OldObject.Raw)
	if err != nil {
		return admission.Errored(http.StatusBadRequest, err)
	}
	if request.Operation == admissionv1.Delete {
		return v.deletion(ctx, &before.typed)
	}
	if now.typed.DeletionTimestamp != nil {
		return admission.Allowed("")
	}
	// What the object had before stays, so that a newer Slipway that is stricter can still write it.
	var errs field.ErrorList
	had := kubevirtconfig.Validate(before.content)
	for _, problem := range kubevirtconfig.Validate(now.content) {
		if !slices.ContainsFunc(had, func(old *field.Error) bool { return old.Error() == problem.Error() }) {
			errs = append(errs, problem)
		}
	}
	asks := func(object *virtv1.KubeVirt) any {
		return []any{object.Spec.Infra, object.Spec.Workloads, object.Spec.CustomizeComponents, object.Spec.ImagePullSecrets}
	}
	if len(errs) == 0 && !sameJSON(asks(&now.typed), asks(&before.typed)) {
		if errs, err = v.judge.components(ctx, asker{kubevirt: &now.typed}, asker{kubevirt: &before.typed}); err != nil {
			return admission.Errored(http.StatusInternalServerError, err)
		}
	}
	if len(errs) > 0 {
		return refused(apierrors.NewInvalid(virtv1.KubeVirtGroupVersionKind.GroupKind(), request.Name, errs))
	}
	return admission.Allowed("").WithWarnings(kubevirtconfig.Warnings(&now.typed)...)
}

// refused answers with all that is wrong with an object.
func refused(invalid *apierrors.StatusError) admission.Response {
	status := invalid.Status()
	return admission.Response{AdmissionResponse: admissionv1.AdmissionResponse{Allowed: false, Result: &status}}
}

// kubeVirt is the object as JSON has it and as its Go type does.
type kubeVirt struct {
	content map[string]any
	typed   virtv1.KubeVirt
}

// kubeVirtOf reads one version of the object of a request, which may have none.
func kubeVirtOf(raw []byte) (kubeVirt, error) {
	var object kubeVirt
	if len(raw) == 0 {
		return object, nil
	}
	if err := errors.Join(json.Unmarshal(raw, &object.content), json.Unmarshal(raw, &object.typed)); err != nil {
		return object, fmt.Errorf("decoding the KubeVirt object: %w", err)
	}
	return object, nil
}

// deletion refuses, in the field's words, that machines lose what runs them.
func (v *kubeVirtValidator) deletion(ctx context.Context, object *virtv1.KubeVirt) admission.Response {
	if object.Spec.UninstallStrategy == virtv1.KubeVirtUninstallStrategyRemoveWorkloads {
		return admission.Allowed("") // it was stored before Slipway refused that
	}
	for _, kind := range machines {
		left, err := workloadsLeft(ctx, v.reader, kind)
		if err != nil {
			return admission.Errored(http.StatusInternalServerError, err)
		}
		if len(left) > 0 {
			return admission.Denied(fmt.Sprintf("Rejecting the uninstall request, since there are still %ss present: %s. Delete them before KubeVirt (uninstallStrategy %s)",
				spaced(kind.Kind), strings.Join(left, ", "), virtv1.KubeVirtUninstallStrategyBlockUninstallIfWorkloadsExist))
		}
	}
	return admission.Allowed("")
}

// spaced is a kind's name as people read it: Virtual Machine for VirtualMachine.
func spaced(kind string) string {
	var words strings.Builder
	for i, letter := range kind {
		if i > 0 && letter >= 'A' && letter <= 'Z' {
			words.WriteByte(' ')
		}
		words.WriteRune(letter)
	}
	return words.String()
}
