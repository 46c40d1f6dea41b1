package admission

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/slipway-vm/slipway/controllers/admission/clone"
	"github.com/slipway-vm/slipway/controllers/admission/datavolume"
	datavolumes "github.com/slipway-vm/slipway/controllers/datavolume"
	"github.com/slipway-vm/slipway/internal/names"
	"github.com/slipway-vm/slipway/internal/supported"
)

// authorizeClone lets a new DataVolume clone what its creator may.
func (a admitter) authorizeClone(ctx context.Context, request admission.Request) admission.Response {
	r, err := decode[cdiv1.DataVolume](&request)
	if err != nil {
		return admission.Errored(http.StatusBadRequest, err)
	}
	var failure error
	changed, err := change(request.Object.Raw, r.object, func(dv *cdiv1.DataVolume) {
		failure = errors.Join(a.clones.Authorize(ctx, dv, request.Namespace, request.UserInfo), a.collected(ctx, dv))
	})
	if message := clone.Refused(failure); message != "" {
		return admission.Denied(message)
	}
	if err := errors.Join(err, failure); err != nil {
		return admission.Errored(http.StatusInternalServerError, err)
	}
	return admission.PatchResponseFromRaw(request.Object.Raw, changed)
}

// collected marks a new DataVolume to go some time after it has succeeded, where that is set and it does not say otherwise.
func (a admitter) collected(ctx context.Context, dv *cdiv1.DataVolume) error {
	config := &cdiv1.CDIConfig{}
	if err := a.reader.Get(ctx, client.ObjectKey{Name: names.CDIConfigName}, config); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("reading CDIConfig %s: %w", names.CDIConfigName, err)
	}
	ttl := config.Spec.DataVolumeTTLSeconds
	if ttl == nil || *ttl < 0 || dv.Annotations[datavolumes.AnnotationCollect] == "false" {
		return nil
	}
	if dv.Annotations == nil {
		dv.Annotations = map[string]string{}
	}
	dv.Annotations[datavolumes.AnnotationCollect] = "true"
	return nil
}

func (a admitter) dataVolume(_ context.Context, r *review[cdiv1.DataVolume]) (field.ErrorList, error) {
	switch {
	case r.object.DeletionTimestamp != nil:
		return nil, nil
	case r.old != nil:
		return datavolume.ValidateUpdate(r.old, r.object), nil
	}
	errs := supported.Unsupported(supported.DataVolume, r.raw)
	return append(errs, datavolume.ValidateNew(&r.object.ObjectMeta, &r.object.Spec, nil)...), nil
}

// completeClaim completes a claim that leaves what it does not say to the StorageProfile of its class. The claims of
// virt-controller are complete: a disk's size has the overhead of its file system already.
func (a admitter) completeClaim(ctx context.Context, request admission.Request) admission.Response {
	if request.UserInfo.Username == a.clones.Controller {
		return admission.Allowed("")
	}
	r, err := decode[corev1.PersistentVolumeClaim](&request)
	if err != nil {
		return admission.Errored(http.StatusBadRequest, err)
	}
	var failure error
	changed, err := change(request.Object.Raw, r.object, func(claim *corev1.PersistentVolumeClaim) {
		failure = datavolumes.Complete(ctx, a.reader, claim)
	})
	if message := datavolumes.Incomplete(failure); message != "" {
		return admission.Denied(message)
	}
	if err := errors.Join(err, failure); err != nil {
		return admission.Errored(http.StatusInternalServerError, err)
	}
	return admission.PatchResponseFromRaw(request.Object.Raw, changed)
}
