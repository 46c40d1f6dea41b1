package virtualmachinerestore

import (
	"context"
	"errors"
	"fmt"
	"maps"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	virtv1 "kubevirt.io/api/core/v1"
	snapshotv1 "kubevirt.io/api/snapshot/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/slipway-vm/slipway/controllers/virtualmachineinstance/pod"
	"github.com/slipway-vm/slipway/controllers/virtualmachinesnapshot"
	"github.com/slipway-vm/slipway/internal/names"
)

// The state of a VM's TPM and firmware is on the claim that has the VM's name in a label. A restored one gets that label at once where
// the VM has no other, so that it never starts without; else when the VM has its definition, and the former one goes then.

// isState reports whether one is made of the state that content has.
func isState(content *snapshotv1.VirtualMachineSnapshotContent, one snapshotv1.VolumeRestore) bool {
	state := virtualmachinesnapshot.StateOf(content)
	return state != nil && state.VolumeName == one.VolumeName
}

// stateLabels are those of the claim with the state of restore's target.
func stateLabels(restore *snapshotv1.VirtualMachineRestore) map[string]string {
	return pod.StateLabels(&virtv1.VirtualMachineInstance{ObjectMeta: metav1.ObjectMeta{Name: restore.Spec.Target.Name}})
}

func hasStateLabel(restore *snapshotv1.VirtualMachineRestore, claim *corev1.PersistentVolumeClaim) bool {
	return claim.Labels[names.LabelState] == stateLabels(restore)[names.LabelState]
}

// keepsStateOn reports whether the target keeps its state on claim.
func keepsStateOn(s *scope, claim *corev1.PersistentVolumeClaim) bool {
	return s.vm != nil && hasStateLabel(s.restore, claim) && pod.HoldsState(claim, s.vm.UID)
}

// otherStates are the claims with the target's state, but for the one of name.
func (r *Reconciler) otherStates(ctx context.Context, s *scope, name string) ([]*corev1.PersistentVolumeClaim, error) {
	var owner types.UID // none: what is nobody's counts for a VM that is to be made
	if s.vm != nil {
		owner = s.vm.UID
	}
	list := &corev1.PersistentVolumeClaimList{}
	if err := r.live.List(ctx, list, client.InNamespace(s.restore.Namespace), client.MatchingLabels(stateLabels(s.restore))); err != nil {
		return nil, fmt.Errorf("looking for the state of VirtualMachine %s/%s: %w", s.restore.Namespace, s.restore.Spec.Target.Name, err)
	}
	var others []*corev1.PersistentVolumeClaim
	for i := range list.Items {
		if claim := &list.Items[i]; claim.Name != name && pod.HoldsState(claim, owner) {
			others = append(others, claim)
		}
	}
	return others, nil
}

// markState marks a claim that is to be made as one with a state: the target's, where that has no other.
func (r *Reconciler) markState(ctx context.Context, s *scope, claim *corev1.PersistentVolumeClaim) error {
	others, err := r.otherStates(ctx, s, claim.Name)
	if err != nil {
		return err
	}
	if s.vm == nil && len(others) > 0 {
		return fail("PersistentVolumeClaim %s, which is nobody's, has the state of a VM named %s; delete it, or take the label %s off it",
			others[0].Name, s.restore.Spec.Target.Name, names.LabelState)
	}
	claim.Annotations[annotationState] = "true"
	if len(others) == 0 {
		maps.Copy(claim.Labels, stateLabels(s.restore))
	}
	return nil
}

// lacksState reports whether one is of the VM's state, and the VM has none: it was deleted to be replaced. Without the snapshot nobody knows,
// and nothing could be done.
func (r *Reconciler) lacksState(ctx context.Context, s *scope, one snapshotv1.VolumeRestore) (bool, error) {
	err := r.findSnapshot(ctx, s)
	if _, lost := errors.AsType[*problem](err); lost {
		return false, nil
	}
	if err != nil || s.vm == nil || !isState(s.content, one) {
		return false, err
	}
	others, err := r.otherStates(ctx, s, one.PersistentVolumeClaimName)
	return len(others) == 0, err
}

// takeState has the VM find the state that was restored at its next start, and no former one.
func (r *Reconciler) takeState(ctx context.Context, s *scope) error {
	for _, one := range s.restores {
		claim := &corev1.PersistentVolumeClaim{}
		found, err := r.get(ctx, client.ObjectKey{Namespace: s.restore.Namespace, Name: one.PersistentVolumeClaimName}, claim)
		if err != nil {
			return err
		}
		ours := found && claim.Annotations[AnnotationLast] == mark(s.restore) && claim.Annotations[annotationState] == "true"
		if !ours || claim.DeletionTimestamp != nil {
			continue // somebody has deleted it since, and the former one is better than none
		}
		err = r.change(ctx, claim, func() {
			if claim.Labels == nil {
				claim.Labels = map[string]string{}
			}
			maps.Copy(claim.Labels, stateLabels(s.restore))
		})
		if err != nil {
			return ifThere(err)
		}
		if err := r.supersede(ctx, s, claim.Name); err != nil {
			return err
		}
	}
	return nil
}

// supersede lets the claims with the VM's former state go that are its own. Others stay, and are no state of it any more.
func (r *Reconciler) supersede(ctx context.Context, s *scope, by string) error {
	others, err := r.otherStates(ctx, s, by)
	if err != nil {
		return err
	}
	for _, claim := range others {
		if !metav1.IsControlledBy(claim, s.vm) {
			if err := ifThere(r.change(ctx, claim, func() { delete(claim.Labels, names.LabelState) })); err != nil {
				return err
			}
			continue
		}
		log.FromContext(ctx).Info("Deleting the former state", "PersistentVolumeClaim", client.ObjectKeyFromObject(claim))
		if err := r.Delete(ctx, claim, client.Preconditions{UID: &claim.UID}); client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("deleting PersistentVolumeClaim %s, which had the former state: %w", client.ObjectKeyFromObject(claim), err)
		}
	}
	return nil
}
