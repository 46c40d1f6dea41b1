package virtualmachineinstance

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	virtv1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/slipway-vm/slipway/controllers/virtualmachineinstance/pod"
	"github.com/slipway-vm/slipway/internal/names"
)

// makeState sees to the claim of what the VMI keeps beside its disks: the one that is
// there from an earlier start, or a new one.
func (r *Reconciler) makeState(ctx context.Context, s *scope) error {
	if !pod.KeepsState(s.vmi) {
		return nil
	}
	claim, err := findState(ctx, r.Client, s.vmi)
	if err == nil && claim == nil {
		// The cache may not have seen the claim of the last pass, or of the last controller.
		claim, err = findState(ctx, r.live, s.vmi)
	}
	if err != nil {
		return err
	}
	if claim == nil {
		if claim, err = r.createState(ctx, s.vmi); err != nil {
			return r.noteFailedCreate(s, err)
		}
	}
	state := &volumeState{name: names.VolumeState, claim: claim.Name, pvc: claim}
	if err := (volumeReader{r.Client}).readClass(ctx, state); err != nil {
		return err
	}
	s.state = state
	return nil
}

// findState returns the claim of vmi's state, nil when there is none.
func findState(ctx context.Context, from client.Reader, vmi *virtv1.VirtualMachineInstance) (*corev1.PersistentVolumeClaim, error) {
	list := &corev1.PersistentVolumeClaimList{}
	if err := from.List(ctx, list, client.InNamespace(vmi.Namespace), client.MatchingLabels(pod.StateLabels(vmi))); err != nil {
		return nil, fmt.Errorf("looking for the state claim of %s/%s: %w", vmi.Namespace, vmi.Name, err)
	}
	return pod.StateIn(list.Items, pod.StateOwner(vmi).UID), nil
}

func (r *Reconciler) createState(ctx context.Context, vmi *virtv1.VirtualMachineInstance) (*corev1.PersistentVolumeClaim, error) {
	class, err := r.stateClass(ctx)
	if err != nil {
		return nil, err
	}
	claim := pod.StateClaim(vmi, class)
	if err := r.Create(ctx, claim, client.FieldOwner(names.ManagerController)); err != nil {
		return nil, fmt.Errorf("creating the state claim of %s/%s: %w", vmi.Namespace, vmi.Name, err)
	}
	return claim, nil
}

// stateClass is the StorageClass of new state claims: the KubeVirt object's, else the
// newest default for virtual machines; empty for the cluster's default.
func (r *Reconciler) stateClass(ctx context.Context) (string, error) {
	settings, err := r.readSettings(ctx)
	if err != nil || settings.stateClass != "" {
		return settings.stateClass, err
	}
	classes := &storagev1.StorageClassList{}
	if err := r.List(ctx, classes); err != nil {
		return "", fmt.Errorf("listing storage classes: %w", err)
	}
	newest := &storagev1.StorageClass{}
	for i := range classes.Items {
		class := &classes.Items[i]
		if class.Annotations[names.AnnotationDefaultVirtClass] == "true" && !class.CreationTimestamp.Before(&newest.CreationTimestamp) {
			newest = class
		}
	}
	return newest.Name, nil
}

// stateUsers are the VMIs whose state claim obj may be.
func stateUsers(obj client.Object) []reconcile.Request {
	name, isState := obj.GetLabels()[names.LabelState]
	if !isState {
		return nil
	}
	if owner := metav1.GetControllerOf(obj); owner != nil {
		name = owner.Name // the label may be shortened
	}
	return []reconcile.Request{{NamespacedName: types.NamespacedName{Namespace: obj.GetNamespace(), Name: name}}}
}
