package admission

import (
	"context"

	"k8s.io/apimachinery/pkg/util/validation/field"
	backupv1 "kubevirt.io/api/backup/v1alpha1"

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

// backupRequest refuses annotations, which are at path, by which users would ask a VMI for a backup in virt-controller's
// place; before is what there was, and may be nil.
func backupRequest(annotations, before map[string]string, path *field.Path) field.ErrorList {
	if annotations[backup.AnnotationRequest] == before[backup.AnnotationRequest] {
		return nil
	}
	return field.ErrorList{field.Forbidden(path.Key(backup.AnnotationRequest),
		"it is written by virt-controller; create a VirtualMachineBackup, or delete it, instead")}
}
