package admission

import (
	"context"

	"k8s.io/apimachinery/pkg/util/validation/field"
	backupv1 "kubevirt.io/api/backup/v1alpha1"
	virtv1 "kubevirt.io/api/core/v1"

	judge "github.com/slipway-vm/slipway/controllers/admission/backup"
	"github.com/slipway-vm/slipway/internal/backup"
)

func (a admitter) backup(ctx context.Context, r *review[backupv1.VirtualMachineBackup]) (field.ErrorList, error) {
	switch {
	case r.object.DeletionTimestamp != nil:
		return nil, nil
	case r.old != nil:
		return judge.ValidateUpdate(&r.old.Spec, &r.object.Spec), nil
	}
	errs := judge.Validate(r.object, r.raw)
	if len(errs) > 0 {
		return errs, nil
	}
	return a.openForBackups(ctx)
}

func (a admitter) backupTracker(ctx context.Context, r *review[backupv1.VirtualMachineBackupTracker]) (field.ErrorList, error) {
	switch {
	case r.object.DeletionTimestamp != nil:
		return nil, nil
	case r.old != nil:
		return judge.ValidateUpdate(&r.old.Spec, &r.object.Spec), nil
	}
	errs := judge.ValidateTracker(r.object, r.raw)
	if len(errs) > 0 {
		return errs, nil
	}
	return a.openForBackups(ctx)
}

func (a admitter) openForBackups(ctx context.Context) (field.ErrorList, error) {
	kv, err := a.kubevirt(ctx)
	if err != nil {
		return nil, err
	}
	return judge.Closed(kv), nil
}

// backupRequest refuses what users ask of a VMI in virt-controller's place; old may be nil.
func backupRequest(vmi, old *virtv1.VirtualMachineInstance) field.ErrorList {
	before := ""
	if old != nil {
		before = old.Annotations[backup.AnnotationRequest]
	}
	if vmi.Annotations[backup.AnnotationRequest] == before {
		return nil
	}
	return field.ErrorList{field.Forbidden(field.NewPath("metadata", "annotations").Key(backup.AnnotationRequest),
		"it is written by virt-controller; create a VirtualMachineBackup, or delete it, instead")}
}
