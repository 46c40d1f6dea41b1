package virtualmachineexport

import (
	"context"
	"fmt"
	"maps"

	csiv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/utils/ptr"
	virtv1 "kubevirt.io/api/core/v1"
	exportv1 "kubevirt.io/api/export/v1beta1"
	snapshotv1 "kubevirt.io/api/snapshot/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-vm/slipway/controllers/virtualmachinesnapshot"
	"github.com/slipway-vm/slipway/internal/names"
)

// backup is a volume of a snapshot, and the name of the claim that is made of it.
type backup struct {
	snapshotv1.VolumeBackup
	claim string
}

// findSnapshot finds the volumes of a snapshot, of which claims are made.
func (r *Reconciler) findSnapshot(ctx context.Context, s *scope) error {
	key := s.key(s.export.Spec.Source.Name)
	snapshot := &snapshotv1.VirtualMachineSnapshot{}
	found, err := r.get(ctx, key, snapshot)
	switch {
	case err != nil:
		return err
	case !found:
		s.lack = &lack{reason: reasonInitializing, message: fmt.Sprintf("VirtualMachineSnapshot %s not found", key)}
		return nil
	}
	s.machine = snapshot.Spec.Source.Name
	content := &snapshotv1.VirtualMachineSnapshotContent{}
	if found, err = r.get(ctx, s.key(virtualmachinesnapshot.ContentName(snapshot)), content); err != nil {
		return err
	}
	switch {
	case !found || !virtualmachinesnapshot.Ready(snapshot) || !virtualmachinesnapshot.ContentReady(content):
		s.lack = &lack{reason: reasonInitializing, message: fmt.Sprintf("VirtualMachineSnapshot %s is not ready", key)}
		return nil
	case len(content.Spec.VolumeBackups) == 0:
		s.lack = &lack{reason: reasonSnapshotEmpty, message: fmt.Sprintf("VirtualMachineSnapshot %s does not contain any volume snapshots", key), empty: true}
		return nil
	}
	if vm := content.Spec.Source.VirtualMachine; vm != nil {
		s.vm = &virtv1.VirtualMachine{ObjectMeta: vm.ObjectMeta, Spec: vm.Spec, Status: vm.Status}
	}
	for _, one := range content.Spec.VolumeBackups {
		was := &one.PersistentVolumeClaim
		b := backup{VolumeBackup: one, claim: s.export.Name + "-" + was.Name}
		if problems := validation.IsDNS1123Subdomain(b.claim); len(problems) > 0 {
			return fail("the claim of volume %s cannot be named %s: %s; give the export a shorter name", one.VolumeName, b.claim, problems[0])
		}
		if s.has(b.claim) { // two volumes of the VM name it
			continue
		}
		s.backups = append(s.backups, b)
		s.volumes = append(s.volumes, Volume{
			Name: was.Name, Claim: b.claim,
			Block: ptr.Deref(was.Spec.VolumeMode, corev1.PersistentVolumeFilesystem) == corev1.PersistentVolumeBlock,
			Disk:  ptr.Deref(was.Spec.VolumeMode, "") == corev1.PersistentVolumeBlock || holdsDisk(was.Annotations, isDisk(content, one.VolumeName)), was: &was.Spec,
		})
	}
	return nil
}

// isDisk says whether a volume of content is a disk of its VM: neither the dumps of its guest's memory, nor the state of its TPM or firmware.
func isDisk(content *snapshotv1.VirtualMachineSnapshotContent, volume string) bool {
	if state := virtualmachinesnapshot.StateOf(content); state != nil && state.VolumeName == volume {
		return false
	}
	vm := content.Spec.Source.VirtualMachine
	if vm == nil || vm.Spec.Template == nil {
		return true
	}
	for _, known := range vm.Spec.Template.Spec.Volumes {
		if known.Name == volume {
			return known.MemoryDump == nil
		}
	}
	return true
}

// makeClaims makes the claims of a snapshot's volumes.
func (r *Reconciler) makeClaims(ctx context.Context, s *scope) error {
	if s.lack != nil {
		return nil
	}
	for i, b := range s.backups {
		claim := &corev1.PersistentVolumeClaim{}
		found, err := r.get(ctx, s.key(b.claim), claim)
		if err == nil && !found {
			claim, err = r.makeClaim(ctx, s, b)
		}
		switch {
		case err != nil:
			return err
		case !metav1.IsControlledBy(claim, s.export) || claim.DeletionTimestamp != nil:
			return s.notOurs("PersistentVolumeClaim", claim)
		case claim.Status.Phase == corev1.ClaimLost:
			return fail("PersistentVolumeClaim %s has lost its volume; delete this export, and make another", b.claim)
		}
		s.volumes[i].Bound = claim.Status.Phase == corev1.ClaimBound
	}
	return nil
}

func (r *Reconciler) makeClaim(ctx context.Context, s *scope, b backup) (*corev1.PersistentVolumeClaim, error) {
	key := s.key(ptr.Deref(b.VolumeSnapshotName, ""))
	snapshot := &csiv1.VolumeSnapshot{}
	found, err := r.get(ctx, key, snapshot)
	switch {
	case err != nil:
		return nil, err
	case !found || snapshot.Status == nil || !ptr.Deref(snapshot.Status.ReadyToUse, false):
		return nil, fail("VolumeSnapshot %s of volume %s is not ready", key, b.VolumeName)
	}
	claim := buildClaim(s.export, b, snapshot.Status.RestoreSize)
	err = r.Create(ctx, claim, client.FieldOwner(names.ManagerController))
	switch {
	case apierrors.IsForbidden(err), apierrors.IsInvalid(err): // a quota, say
		return nil, fail("creating PersistentVolumeClaim %s: %v", claim.Name, err)
	case err != nil:
		return nil, fmt.Errorf("creating PersistentVolumeClaim %s: %w", client.ObjectKeyFromObject(claim), err)
	}
	return claim, nil
}

// buildClaim returns the claim of a snapshot's volume: as it was when the snapshot was taken, and as large as size at least.
func buildClaim(export *exportv1.VirtualMachineExport, b backup, size *resource.Quantity) *corev1.PersistentVolumeClaim {
	was := b.PersistentVolumeClaim.Spec.DeepCopy()
	claim := &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: export.Namespace, Name: b.claim, Labels: map[string]string{names.LabelManagedBy: names.ManagedBy},
			OwnerReferences: []metav1.OwnerReference{owner(export)},
		},
		Spec: corev1.PersistentVolumeClaimSpec{
			AccessModes: was.AccessModes, StorageClassName: was.StorageClassName, VolumeMode: was.VolumeMode, Resources: was.Resources,
			DataSource: &corev1.TypedLocalObjectReference{APIGroup: new(csiv1.GroupName), Kind: "VolumeSnapshot", Name: ptr.Deref(b.VolumeSnapshotName, "")},
		},
	}
	if size != nil && size.Cmp(*was.Resources.Requests.Storage()) > 0 {
		claim.Spec.Resources.Requests = maps.Clone(was.Resources.Requests)
		if claim.Spec.Resources.Requests == nil {
			claim.Spec.Resources.Requests = corev1.ResourceList{}
		}
		claim.Spec.Resources.Requests[corev1.ResourceStorage] = *size
	}
	return claim
}
