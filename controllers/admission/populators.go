package admission

import (
	"context"

	"k8s.io/apimachinery/pkg/util/validation/field"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"

	"github.com/slipway-vm/slipway/controllers/admission/populator"
	"github.com/slipway-vm/slipway/internal/supported"
)

func importSource(_ context.Context, r *review[cdiv1.VolumeImportSource]) (field.ErrorList, error) {
	switch {
	case r.object.DeletionTimestamp != nil:
		return nil, nil
	case r.old != nil:
		return populator.Unchanged(supported.VolumeImportSource, r.old.Spec, r.object.Spec), nil
	}
	return append(supported.Unsupported(supported.VolumeImportSource, r.raw), populator.Import(r.object)...), nil
}

func uploadSource(_ context.Context, r *review[cdiv1.VolumeUploadSource]) (field.ErrorList, error) {
	switch {
	case r.object.DeletionTimestamp != nil:
		return nil, nil
	case r.old != nil:
		return populator.Unchanged(supported.VolumeUploadSource, r.old.Spec, r.object.Spec), nil
	}
	return append(supported.Unsupported(supported.VolumeUploadSource, r.raw), populator.Upload(r.object)...), nil
}

func cloneSource(_ context.Context, r *review[cdiv1.VolumeCloneSource]) (field.ErrorList, error) {
	switch {
	case r.object.DeletionTimestamp != nil:
		return nil, nil
	case r.old != nil:
		return populator.Unchanged(supported.VolumeCloneSource, r.old.Spec, r.object.Spec), nil
	}
	return append(supported.Unsupported(supported.VolumeCloneSource, r.raw), populator.Clone(r.object)...), nil
}
