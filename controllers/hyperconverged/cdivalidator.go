package hyperconverged

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/slipway-vm/slipway/internal/names"
)

// cdiValidator admits the CDI object when cdi-uploadproxy can be deployed as it says. All else of it virt-api judges.
type cdiValidator struct {
	judge judge
}

// Handle answers one admission request.
func (v *cdiValidator) Handle(ctx context.Context, request admission.Request) admission.Response {
	if request.Name != names.CDIName {
		return admission.Allowed("")
	}
	now, before := &cdiv1.CDI{}, &cdiv1.CDI{}
	for object, raw := range map[*cdiv1.CDI][]byte{now: request.Object.Raw, before: request.OldObject.Raw} {
		if len(raw) == 0 {
			continue
		}
		if err := json.Unmarshal(raw, object); err != nil {
			return admission.Errored(http.StatusBadRequest, fmt.Errorf("decoding the CDI object: %w", err))
		}
	}
	asks := func(cdi *cdiv1.CDI) any { return []any{cdi.Spec.Infra, cdi.Spec.CustomizeComponents} }
	if now.DeletionTimestamp != nil || sameJSON(asks(now), asks(before)) {
		return admission.Allowed("")
	}
	errs, err := v.judge.components(ctx, asker{cdi: now}, asker{cdi: before})
	if err != nil {
		return admission.Errored(http.StatusInternalServerError, err)
	}
	if len(errs) > 0 {
		return refused(apierrors.NewInvalid(cdiKind.GroupKind(), request.Name, errs))
	}
	return admission.Allowed("")
}
