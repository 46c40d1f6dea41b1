package virtualmachinerestore

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	snapshotv1 "kubevirt.io/api/snapshot/v1beta1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-vm/slipway/internal/keep"
	"github.com/slipway-vm/slipway/internal/names"
)

// writeMachine gives the VM its definition, or makes it. What the API server does not take is told, and tried again.
func (r *Reconciler) writeMachine(ctx context.Context, s *scope) error {
	if s.restored() {
		return nil
	}
	s.progress, s.waiting = updatingTarget, waitingForUpdate
	if s.vm != nil {
		next := restoredMachine(s.vm, s.restore, s.content, s.restores)
		if err := r.Update(ctx, next, client.FieldOwner(names.ManagerController)); err != nil {
			return refusal(fmt.Errorf("updating VirtualMachine %s: %w", client.ObjectKeyFromObject(next), err))
		}
		s.vm = next
		return nil
	}
	next, err := newMachine(s.restore, s.content, s.restores, s.snapshot.Status.SourceUID)
	if err != nil {
		return err
	}
	if err := r.Create(ctx, next, client.FieldOwner(names.ManagerController)); err != nil {
		return refusal(fmt.Errorf("creating VirtualMachine %s: %w", client.ObjectKeyFromObject(next), err))
	}
	s.vm = next
	return nil
}

// refusal is err as the user's problem, when the API server refuses what is asked for.
func refusal(err error) error {
	if apierrors.IsInvalid(err) || apierrors.IsForbidden(err) || apierrors.IsBadRequest(err) {
		return fail("%v", err)
	}
	return err
}

// ownVolumes gives the claims to the VM: by DataVolumes where it has templates of these. Those that are kept for it are its own already.
func (r *Reconciler) ownVolumes(ctx context.Context, s *scope) error {
	if !owned(s.restore) {
		return nil
	}
	for _, one := range s.restores {
		if err := r.ownVolume(ctx, s, one); err != nil {
			return err
		}
	}
	return nil
}

func (r *Reconciler) ownVolume(ctx context.Context, s *scope, one snapshotv1.VolumeRestore) error {
	if one.DataVolumeName != nil {
		return r.createDataVolume(ctx, s, one)
	}
	claim := &corev1.PersistentVolumeClaim{}
	found, err := r.get(ctx, client.ObjectKey{Namespace: s.restore.Namespace, Name: one.PersistentVolumeClaimName}, claim)
	if err != nil {
		return err
	}
	if !found || metav1.GetControllerOf(claim) != nil || claim.Labels[keep.LabelFor] == string(s.vm.UID) {
		return nil
	}
	return ifThere(r.change(ctx, claim, func() { keep.Give(claim, s.vm) }))
}

func (r *Reconciler) createDataVolume(ctx context.Context, s *scope, one snapshotv1.VolumeRestore) error {
	template := templateOf(s.vm.Spec.DataVolumeTemplates, *one.DataVolumeName)
	if template == nil {
		return nil // somebody has taken it from the VM since
	}
	claim := &corev1.PersistentVolumeClaim{}
	found, err := r.get(ctx, client.ObjectKey{Namespace: s.restore.Namespace, Name: one.PersistentVolumeClaimName}, claim)
	if err != nil || !found {
		return err // somebody has deleted the disk since
	}
	dv := newDataVolume(s.restore, s.vm, template, one, *claim.Spec.Resources.Requests.Storage())
	err = r.Create(ctx, dv, client.FieldOwner(names.ManagerController))
	if err == nil {
		return nil
	}
	if !apierrors.IsAlreadyExists(err) {
		return refusal(fmt.Errorf("creating DataVolume %s: %w", client.ObjectKeyFromObject(dv), err))
	}
	if found, err = r.get(ctx, client.ObjectKeyFromObject(dv), dv); err != nil {
		return err
	}
	if kept := dv.Labels[keep.LabelFor] == string(s.vm.UID); found && !kept && !metav1.IsControlledBy(dv, s.vm) {
		return fail("DataVolume %s exists and is not VirtualMachine %s's; delete it, which must leave PersistentVolumeClaim %s", dv.Name, s.vm.Name, one.PersistentVolumeClaimName)
	}
	return nil
}

// removeObsolete deletes the DataVolumes of templates that the VM had, with their claims.
func (r *Reconciler) removeObsolete(ctx context.Context, s *scope) error {
	for _, name := range s.obsolete {
		dv := &cdiv1.DataVolume{}
		found, err := r.get(ctx, client.ObjectKey{Namespace: s.restore.Namespace, Name: name}, dv)
		if err != nil {
			return err
		}
		if !found || !metav1.IsControlledBy(dv, s.vm) || templateOf(s.vm.Spec.DataVolumeTemplates, name) != nil {
			continue
		}
		if err := r.Delete(ctx, dv, client.Preconditions{UID: &dv.UID}); client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("deleting DataVolume %s: %w", client.ObjectKeyFromObject(dv), err)
		}
	}
	return nil
}

// finish says that the restore is done.
func (r *Reconciler) finish(_ context.Context, s *scope) error {
	s.done = true
	r.events.Eventf(s.restore, nil, corev1.EventTypeNormal, reasonComplete, "Reconcile", "Successfully completed VirtualMachineRestore %s", s.restore.Name)
	return nil
}
