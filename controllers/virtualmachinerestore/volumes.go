package virtualmachinerestore

import (
	"context"
	"fmt"
	"slices"
	"strings"

	csiv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/utils/ptr"
	clonev1 "kubevirt.io/api/clone/v1beta1"
	virtv1 "kubevirt.io/api/core/v1"
	snapshotv1 "kubevirt.io/api/snapshot/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-vm/slipway/controllers/virtualmachinesnapshot"
	"github.com/slipway-vm/slipway/internal/names"
	"github.com/slipway-vm/slipway/internal/steps"
)

// recordVolumes writes down what will be made, and what will not be needed any more.
func (r *Reconciler) recordVolumes(ctx context.Context, s *scope) error {
	if s.restored() {
		return nil
	}
	var err error
	if s.restores, err = restoresOf(s.restore, s.content); err != nil {
		return err
	}
	s.obsolete = obsolete(s.vm, s.content, s.restores)
	s.progress, s.waiting = creatingClaims, waitingForClaims
	return r.writeStatus(ctx, s)
}

// restoresOf are the claims that restore makes from content.
func restoresOf(restore *snapshotv1.VirtualMachineRestore, content *snapshotv1.VirtualMachineSnapshotContent) ([]snapshotv1.VolumeRestore, error) {
	var all []snapshotv1.VolumeRestore
	used := map[string]string{}
	for _, override := range restore.Spec.VolumeRestoreOverrides {
		if backupOf(content, override.VolumeName) == nil {
			return nil, fail("spec.volumeRestoreOverrides names volume %s, which is not in the snapshot", override.VolumeName)
		}
	}
	machine := content.Spec.Source.VirtualMachine
	volumes := machine.Spec.Template.Spec.Volumes
	if state := virtualmachinesnapshot.StateOf(content); state != nil {
		volumes = append(slices.Clone(volumes), virtv1.Volume{Name: state.VolumeName})
	}
	for _, volume := range volumes {
		backup := backupOf(content, volume.Name)
		if backup == nil || volume.MemoryDump != nil {
			continue
		}
		if backup.VolumeSnapshotName == nil {
			return nil, fail("VolumeSnapshotName missing of volume %s in VMSnapshotContent %s", volume.Name, content.Name)
		}
		name := claimName(restore, backup)
		if problems := validation.IsDNS1123Subdomain(name); len(problems) > 0 {
			return nil, fail("the claim of volume %s cannot be named %s: %s; name it in spec.volumeRestoreOverrides", volume.Name, name, problems[0])
		}
		if other := used[name]; other != "" {
			return nil, fail("the claims of volumes %s and %s would both be named %s; name them in spec.volumeRestoreOverrides", other, volume.Name, name)
		}
		used[name] = volume.Name
		one := snapshotv1.VolumeRestore{VolumeName: volume.Name, PersistentVolumeClaimName: name, VolumeSnapshotName: *backup.VolumeSnapshotName}
		if owned(restore) && volume.DataVolume != nil && templateOf(machine.Spec.DataVolumeTemplates, volume.DataVolume.Name) != nil {
			one.DataVolumeName = &name
		}
		all = append(all, one)
	}
	return all, nil
}

// owned reports whether the claims that restore makes go with its VM.
func owned(restore *snapshotv1.VirtualMachineRestore) bool {
	return ptr.Deref(restore.Spec.VolumeOwnershipPolicy, snapshotv1.VolumeOwnershipPolicyVm) == snapshotv1.VolumeOwnershipPolicyVm
}

// claimName is the name of the claim that is made for a volume.
func claimName(restore *snapshotv1.VirtualMachineRestore, of *snapshotv1.VolumeBackup) string {
	if override := overrideOf(restore, of.VolumeName); override != nil && override.RestoreName != "" {
		return override.RestoreName
	}
	switch ptr.Deref(restore.Spec.VolumeRestorePolicy, snapshotv1.VolumeRestorePolicyRandomizeNames) {
	case snapshotv1.VolumeRestorePolicyInPlace:
		return of.PersistentVolumeClaim.Name
	case snapshotv1.VolumeRestorePolicyPrefixTargetName:
		return restore.Spec.Target.Name + "-" + of.VolumeName
	}
	return fmt.Sprintf("restore-%s-%s", restore.UID, of.VolumeName)
}

func overrideOf(restore *snapshotv1.VirtualMachineRestore, volume string) *snapshotv1.VolumeRestoreOverride {
	for i := range restore.Spec.VolumeRestoreOverrides {
		if override := &restore.Spec.VolumeRestoreOverrides[i]; override.VolumeName == volume {
			return override
		}
	}
	return nil
}

func backupOf(content *snapshotv1.VirtualMachineSnapshotContent, volume string) *snapshotv1.VolumeBackup {
	for i := range content.Spec.VolumeBackups {
		if backup := &content.Spec.VolumeBackups[i]; backup.VolumeName == volume {
			return backup
		}
	}
	return nil
}

// createClaims makes the claims, and waits until those have volumes that get one without a pod.
func (r *Reconciler) createClaims(ctx context.Context, s *scope) error {
	if s.restored() {
		return nil
	}
	var pending []string
	for _, one := range s.restores {
		claim, err := r.ensureClaim(ctx, s, one)
		if err != nil {
			return err
		}
		waits, err := r.claimWaits(ctx, s, claim)
		if err != nil {
			return err
		}
		if waits {
			pending = append(pending, claim.Name)
		}
	}
	if len(pending) > 0 {
		return steps.ErrDone // their change is watched
	}
	return nil
}

// ensureClaim returns the claim of a volume, which is made where there is none of its name.
func (r *Reconciler) ensureClaim(ctx context.Context, s *scope, one snapshotv1.VolumeRestore) (*corev1.PersistentVolumeClaim, error) {
	claim := &corev1.PersistentVolumeClaim{}
	found, err := r.get(ctx, client.ObjectKey{Namespace: s.restore.Namespace, Name: one.PersistentVolumeClaimName}, claim)
	if err == nil && !found {
		return r.createClaim(ctx, s, one)
	}
	return claim, err
}

// readySnapshot returns the VolumeSnapshot that a claim is made from.
func (r *Reconciler) readySnapshot(ctx context.Context, s *scope, one snapshotv1.VolumeRestore) (*csiv1.VolumeSnapshot, error) {
	snapshot := &csiv1.VolumeSnapshot{}
	key := client.ObjectKey{Namespace: s.restore.Namespace, Name: one.VolumeSnapshotName}
	found, err := r.get(ctx, key, snapshot)
	switch {
	case err != nil:
		return nil, err
	case !found || snapshot.Status == nil || !ptr.Deref(snapshot.Status.ReadyToUse, false) || snapshot.DeletionTimestamp != nil:
		return nil, fail("VolumeSnapshot %s of volume %s is not ready", key, one.VolumeName)
	}
	return snapshot, nil
}

func (r *Reconciler) createClaim(ctx context.Context, s *scope, one snapshotv1.VolumeRestore) (*corev1.PersistentVolumeClaim, error) {
	snapshot, err := r.readySnapshot(ctx, s, one)
	if err != nil {
		return nil, err
	}
	claim := newClaim(s.restore, s.content, one, snapshot.Status.RestoreSize)
	if isState(s.content, one) {
		if err := r.markState(ctx, s, claim); err != nil {
			return nil, err
		}
	}
	err = r.Create(ctx, claim, client.FieldOwner(names.ManagerController))
	switch {
	case apierrors.IsForbidden(err), apierrors.IsInvalid(err): // a quota, say
		return nil, fail("creating PersistentVolumeClaim %s: %v", claim.Name, err)
	case err != nil:
		return nil, fmt.Errorf("creating PersistentVolumeClaim %s: %w", client.ObjectKeyFromObject(claim), err)
	}
	return claim, nil
}

// claimWaits says whether claim is to have a volume before the VM names it.
func (r *Reconciler) claimWaits(ctx context.Context, s *scope, claim *corev1.PersistentVolumeClaim) (bool, error) {
	switch {
	case claim.Annotations[AnnotationLast] != mark(s.restore):
		return false, fail("PersistentVolumeClaim %s exists; delete it, or name the claim otherwise in spec.volumeRestoreOverrides", claim.Name)
	case claim.DeletionTimestamp != nil:
		return false, fail("PersistentVolumeClaim %s is being deleted", claim.Name)
	case claim.Status.Phase == corev1.ClaimBound:
		return false, nil
	case claim.Status.Phase == corev1.ClaimLost:
		return false, fail("PersistentVolumeClaim %s has lost its volume; delete this restore, and make another", claim.Name)
	case ptr.Deref(claim.Spec.StorageClassName, "") == "":
		return true, nil
	}
	class := &storagev1.StorageClass{}
	found, err := r.get(ctx, client.ObjectKey{Name: *claim.Spec.StorageClassName}, class)
	if err == nil && !found {
		err = fail("StorageClass %s does not exist", *claim.Spec.StorageClassName)
	}
	return ptr.Deref(class.VolumeBindingMode, storagev1.VolumeBindingImmediate) == storagev1.VolumeBindingImmediate, err
}

// holdSnapshot gives the snapshot to the claims that have no volume yet, where it goes with a clone: without it they never get
// one, and whoever deletes the clone leaves its VM.
func (r *Reconciler) holdSnapshot(ctx context.Context, s *scope) error {
	if s.restored() {
		return nil
	}
	if by := metav1.GetControllerOf(s.snapshot); by == nil || by.Kind != clonev1.VirtualMachineCloneKind.Kind {
		return nil
	}
	var owners []metav1.OwnerReference
	for _, one := range s.restores {
		claim := &corev1.PersistentVolumeClaim{}
		found, err := r.get(ctx, client.ObjectKey{Namespace: s.restore.Namespace, Name: one.PersistentVolumeClaimName}, claim)
		if err != nil {
			return err
		}
		if found && claim.Status.Phase != corev1.ClaimBound {
			owners = append(owners, metav1.OwnerReference{APIVersion: "v1", Kind: "PersistentVolumeClaim", Name: claim.Name, UID: claim.UID})
		}
	}
	return r.change(ctx, s.snapshot, func() {
		for _, owner := range owners {
			if !slices.ContainsFunc(s.snapshot.OwnerReferences, func(o metav1.OwnerReference) bool { return o.UID == owner.UID }) {
				s.snapshot.OwnerReferences = append(s.snapshot.OwnerReferences, owner)
			}
		}
	})
}

// takeBack deletes the claims that no VM names.
func (r *Reconciler) takeBack(ctx context.Context, s *scope) error {
	for _, one := range s.restores {
		claim := &corev1.PersistentVolumeClaim{}
		found, err := r.get(ctx, client.ObjectKey{Namespace: s.restore.Namespace, Name: one.PersistentVolumeClaimName}, claim)
		if err != nil {
			return err
		}
		if !found || claim.Annotations[AnnotationLast] != mark(s.restore) {
			continue
		}
		if err := r.Delete(ctx, claim, client.Preconditions{UID: &claim.UID}); client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("deleting PersistentVolumeClaim %s: %w", client.ObjectKeyFromObject(claim), err)
		}
	}
	return nil
}

// notKept begin the annotations of a claim that say what is so of its old volume only.
var notKept = []string{
	"pv.kubernetes.io", "volume.beta.kubernetes.io", "volume.kubernetes.io", "cdi.kubevirt.io", "k8s.io/CloneRequest", "k8s.io/CloneOf",
	names.Domain, AnnotationName, AnnotationLast,
}

// kept are annotations without those that are not.
func kept(annotations map[string]string) map[string]string {
	all := map[string]string{}
	for key, value := range annotations {
		drop := false
		for _, prefix := range notKept {
			drop = drop || strings.HasPrefix(key, prefix)
		}
		if !drop {
			all[key] = value
		}
	}
	return all
}
