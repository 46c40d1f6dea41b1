package virtualmachinetemplaterequest

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	snapshotv1 "kubevirt.io/api/snapshot/v1beta1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	vmtemplatev1beta1 "github.com/slipway-vm/slipway/internal/api/virtualmachinetemplate/v1beta1"
	"github.com/slipway-vm/slipway/internal/names"
	"github.com/slipway-vm/slipway/internal/steps"
)

// copyDisks asks for the copies that there are not yet.
func (r *Reconciler) copyDisks(ctx context.Context, s *scope) error {
	for _, backup := range copied(s.content) {
		wanted := newDisk(s.request, s.content.Namespace, &backup)
		key := client.ObjectKeyFromObject(wanted)
		if there := s.disks[key.Name]; there != nil {
			if !equality.Semantic.DeepEqual(there.Spec.Source, wanted.Spec.Source) {
				return fail("DataVolume %s was not made from VirtualMachineSnapshot %s/%s: another was deleted since; make the request again",
					key, s.snapshot.Namespace, s.snapshot.Name)
			}
			continue
		}
		err := r.Create(ctx, wanted, client.FieldOwner(names.ManagerController))
		switch {
		case apierrors.IsAlreadyExists(err):
			return fail("DataVolume %s does not belong to this request; delete it, and make the request again", key)
		case refused(err):
			return poll("creating DataVolume %s: %v", key, err)
		case err != nil:
			return fmt.Errorf("creating DataVolume %s: %w", key, err)
		}
		s.disks[key.Name] = wanted
	}
	return nil
}

// newDisk makes the DataVolume with the copy of a disk, of which a snapshot was taken in a namespace. It goes with request until it is the template's.
func newDisk(request *vmtemplatev1beta1.VirtualMachineTemplateRequest, from string, backup *snapshotv1.VolumeBackup) *cdiv1.DataVolume {
	return &cdiv1.DataVolume{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: request.Namespace, Name: diskName(request, backup.VolumeName),
			Labels:          map[string]string{vmtemplatev1beta1.LabelRequest: string(request.UID)},
			Annotations:     map[string]string{names.AnnotationBind: "true", names.AnnotationCollect: "false"}, // nobody uses it; the template names it
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(request, kindRequest)},
		},
		Spec: cdiv1.DataVolumeSpec{
			Source:  &cdiv1.DataVolumeSource{Snapshot: &cdiv1.DataVolumeSourceSnapshot{Namespace: from, Name: *backup.VolumeSnapshotName}},
			Storage: storage(backup),
		},
	}
}

// storage is a claim like the one that the disk was on, of the size of its source.
func storage(backup *snapshotv1.VolumeBackup) *cdiv1.StorageSpec {
	was := &backup.PersistentVolumeClaim.Spec
	return &cdiv1.StorageSpec{StorageClassName: was.StorageClassName, AccessModes: was.AccessModes}
}

// awaitDisks waits until all copies are complete.
func (r *Reconciler) awaitDisks(_ context.Context, s *scope) error {
	for _, backup := range copied(s.content) {
		dv := s.disks[diskName(s.request, backup.VolumeName)]
		key := client.ObjectKeyFromObject(dv)
		switch {
		case dv.DeletionTimestamp != nil:
			return fail("DataVolume %s is being deleted", key)
		case dv.Status.Phase == cdiv1.Failed:
			return fail("%s", and(fmt.Sprintf("DataVolume %s failed", key), said(dv)))
		case dv.Status.Phase != cdiv1.Succeeded:
			s.waits = and(fmt.Sprintf("Waiting for DataVolume %s to be ready", key), said(dv))
			return steps.ErrDone
		}
	}
	return nil
}

// said is what a DataVolume that is not complete says of itself.
func said(dv *cdiv1.DataVolume) string {
	for _, c := range dv.Status.Conditions {
		if c.Type == cdiv1.DataVolumeRunning {
			return c.Message
		}
	}
	return ""
}

// giveDisks makes the copies the template's, which they go with.
func (r *Reconciler) giveDisks(ctx context.Context, s *scope) error {
	for _, backup := range copied(s.content) {
		dv := s.disks[diskName(s.request, backup.VolumeName)]
		err := r.change(ctx, dv, func() {
			dv.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(s.template, kindTemplate)}
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// change patches what edit changes of object, of the version that was read.
func (r *Reconciler) change(ctx context.Context, object client.Object, edit func()) error {
	before, ok := object.DeepCopyObject().(client.Object)
	if !ok {
		return fmt.Errorf("copying %T %s failed", object, object.GetName())
	}
	edit()
	if equality.Semantic.DeepEqual(before, object) {
		return nil
	}
	patch := client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})
	if err := r.Patch(ctx, object, patch, client.FieldOwner(names.ManagerController)); err != nil {
		return fmt.Errorf("changing %T %s: %w", object, client.ObjectKeyFromObject(object), err)
	}
	return nil
}

// finish says that the template is there.
func (r *Reconciler) finish(_ context.Context, s *scope) error {
	s.done = true
	return nil
}
