package virtualmachinerestore

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	virtv1 "kubevirt.io/api/core/v1"
	snapshotv1 "kubevirt.io/api/snapshot/v1beta1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/slipway-vm/slipway/controllers/virtualmachinesnapshot"
	"github.com/slipway-vm/slipway/internal/population"
	"github.com/slipway-vm/slipway/internal/steps"
)

const kindDataVolume = "DataVolume"

// inPlace reports whether restored claims take the names of those that the VM had, so that nothing that names them need change.
func inPlace(restore *snapshotv1.VirtualMachineRestore) bool {
	return ptr.Deref(restore.Spec.VolumeRestorePolicy, "") == snapshotv1.VolumeRestorePolicyInPlace
}

// replaceClaims deletes the VM's claims whose names the restored ones take, and waits until they are gone. All that those are
// made from is looked at before: from then on the snapshot alone has the disks.
func (r *Reconciler) replaceClaims(ctx context.Context, s *scope) error {
	if s.restored() || !inPlace(s.restore) {
		return nil
	}
	var old []client.Object
	for _, one := range s.restores {
		if _, err := r.readySnapshot(ctx, s, one); err != nil {
			return err
		}
		object, err := r.inTheWay(ctx, s, one)
		if err != nil {
			return err
		}
		if object != nil {
			old = append(old, object)
		}
	}
	for _, object := range old {
		if object.GetDeletionTimestamp() != nil {
			continue
		}
		log.FromContext(ctx).Info("Deleting what is replaced", "type", fmt.Sprintf("%T", object), "name", object.GetName())
		uid := object.GetUID()
		if err := r.Delete(ctx, object, client.Preconditions{UID: &uid}); client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("deleting %T %s, which is replaced: %w", object, client.ObjectKeyFromObject(object), err)
		}
	}
	if len(old) > 0 {
		s.again = replaceRetry // nothing tells of the end of others' claims
		return steps.ErrDone
	}
	return nil
}

// inTheWay returns what is to go so that a claim can be made: the claim of its name, or the DataVolume with which that goes; nil where
// nothing is. What is not the VM's own disk does not go.
func (r *Reconciler) inTheWay(ctx context.Context, s *scope, one snapshotv1.VolumeRestore) (client.Object, error) {
	claim := &corev1.PersistentVolumeClaim{}
	found, err := r.get(ctx, client.ObjectKey{Namespace: s.restore.Namespace, Name: one.PersistentVolumeClaimName}, claim)
	on := isOn(s.vm, one) || isState(s.content, one) && keepsStateOn(s, claim)
	switch {
	case err != nil:
		return nil, err
	case !found || claim.Annotations[AnnotationLast] == mark(s.restore):
		return nil, nil
	case claim.DeletionTimestamp != nil:
		return claim, nil
	case !on:
		return nil, fail("PersistentVolumeClaim %s exists, and is not what volume %s of VirtualMachine %s is on; delete it, or restore to other names by another volumeRestorePolicy",
			claim.Name, one.VolumeName, s.restore.Spec.Target.Name)
	}
	if err := r.checkUnused(ctx, claim); err != nil {
		return nil, err
	}
	by := metav1.GetControllerOf(claim)
	if by == nil || by.Kind != kindDataVolume {
		return claim, nil
	}
	dv := &cdiv1.DataVolume{}
	found, err = r.get(ctx, client.ObjectKey{Namespace: claim.Namespace, Name: by.Name}, dv)
	switch {
	case err != nil:
		return nil, err
	case !found || dv.UID != by.UID: // which its claim follows
		return claim, nil
	case !metav1.IsControlledBy(dv, s.vm):
		return nil, fail("PersistentVolumeClaim %s is DataVolume %s's, which is not VirtualMachine %s's and would fill it again; have the DataVolume go and its claim stay (kubectl delete dv %s --cascade=orphan), or restore to other names by another volumeRestorePolicy",
			claim.Name, dv.Name, s.vm.Name, dv.Name)
	}
	return dv, nil
}

// checkUnused refuses to replace a claim under a pod, such as of another VM that shares the disk: it would run on with the old one.
func (r *Reconciler) checkUnused(ctx context.Context, claim *corev1.PersistentVolumeClaim) error {
	var pods corev1.PodList
	if err := r.live.List(ctx, &pods, client.InNamespace(claim.Namespace)); err != nil {
		return fmt.Errorf("looking for pods that use PersistentVolumeClaim %s: %w", claim.Name, err)
	}
	for i := range pods.Items {
		pod := &pods.Items[i]
		ended := pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
		if !ended && population.Uses(pod, claim) {
			return fail("PersistentVolumeClaim %s is in use by Pod %s; it is replaced when that has ended", claim.Name, pod.Name)
		}
	}
	return nil
}

// isOn reports whether vm has a volume on the claim of one.
func isOn(vm *virtv1.VirtualMachine, one snapshotv1.VolumeRestore) bool {
	if vm == nil || vm.Spec.Template == nil {
		return false
	}
	for i := range vm.Spec.Template.Spec.Volumes {
		volume := &vm.Spec.Template.Spec.Volumes[i]
		if volume.Name == one.VolumeName && virtualmachinesnapshot.ClaimOf(volume) == one.PersistentVolumeClaimName {
			return true
		}
	}
	return false
}

// putBack leaves the VM with all of its disks, after a restore in their places that was deleted too early: those that are gone are made
// from the snapshot, as far as that is there. Of the others those go that no VM names.
func (r *Reconciler) putBack(ctx context.Context, s *scope) error {
	for _, one := range s.restores {
		claim := &corev1.PersistentVolumeClaim{}
		found, err := r.get(ctx, client.ObjectKey{Namespace: s.restore.Namespace, Name: one.PersistentVolumeClaimName}, claim)
		if err != nil {
			return err
		}
		if !found {
			claim = nil
		}
		on, err := r.isVMs(ctx, s, one, claim)
		ours := found && claim.Annotations[AnnotationLast] == mark(s.restore)
		switch {
		case err != nil:
		case !on && ours:
			if err := r.Delete(ctx, claim, client.Preconditions{UID: &claim.UID}); client.IgnoreNotFound(err) != nil {
				return fmt.Errorf("deleting PersistentVolumeClaim %s: %w", client.ObjectKeyFromObject(claim), err)
			}
		case !on:
		case ours:
			err = r.putOneBack(ctx, s, one)
		case found:
			var goes bool
			if goes, err = r.goes(ctx, claim); goes {
				s.again = replaceRetry
				return steps.ErrDone
			}
		default:
			err = r.putOneBack(ctx, s, one)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// isVMs reports whether the VM has a disk or its state on one, or had it until that was deleted to be replaced. claim is one's, nil where there
// is none.
func (r *Reconciler) isVMs(ctx context.Context, s *scope, one snapshotv1.VolumeRestore, claim *corev1.PersistentVolumeClaim) (bool, error) {
	switch {
	case isOn(s.vm, one):
		return true, nil
	case claim != nil:
		return keepsStateOn(s, claim), nil
	}
	return r.lacksState(ctx, s, one)
}

// putOneBack makes the claim of a volume from the snapshot where it is missing, and what it belongs to. Without the snapshot nothing can
// be done, and the restore need not stay for that.
func (r *Reconciler) putOneBack(ctx context.Context, s *scope, one snapshotv1.VolumeRestore) error {
	err := r.findSnapshot(ctx, s)
	if err == nil {
		_, err = r.ensureClaim(ctx, s, one)
	}
	if err == nil && owned(s.restore) {
		err = r.ownVolume(ctx, s, one)
	}
	if lost, ok := errors.AsType[*problem](err); ok {
		r.tell(s, lost)
		return nil
	}
	return err
}

// goes reports whether claim is being deleted, by itself or with its DataVolume.
func (r *Reconciler) goes(ctx context.Context, claim *corev1.PersistentVolumeClaim) (bool, error) {
	by := metav1.GetControllerOf(claim)
	if claim.DeletionTimestamp != nil || by == nil || by.Kind != kindDataVolume {
		return claim.DeletionTimestamp != nil, nil
	}
	dv := &cdiv1.DataVolume{}
	found, err := r.get(ctx, client.ObjectKey{Namespace: claim.Namespace, Name: by.Name}, dv)
	return err == nil && (!found || dv.UID != by.UID || dv.DeletionTimestamp != nil), err
}
