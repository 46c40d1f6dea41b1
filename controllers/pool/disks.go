package pool

import (
	"context"
	"fmt"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	virtv1 "kubevirt.io/api/core/v1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-vm/slipway/internal/names"
)

// keepDisks makes the DataVolumes of a VM that is to be deleted nobody's, so that they do
// not go with it. The next VM of its name finds its disks filled.
func (r *Reconciler) keepDisks(ctx context.Context, vm *virtv1.VirtualMachine) error {
	for i := range vm.Spec.DataVolumeTemplates {
		dv := &cdiv1.DataVolume{}
		key := client.ObjectKey{Namespace: vm.Namespace, Name: vm.Spec.DataVolumeTemplates[i].Name}
		err := r.live.Get(ctx, key, dv)
		if apierrors.IsNotFound(err) || err == nil && !metav1.IsControlledBy(dv, vm) {
			continue
		}
		if err != nil {
			return fmt.Errorf("reading DataVolume %s: %w", key, err)
		}
		changed := dv.DeepCopy()
		changed.OwnerReferences = slices.DeleteFunc(changed.OwnerReferences, func(owner metav1.OwnerReference) bool { return owner.UID == vm.UID })
		patch := client.MergeFromWithOptions(dv, client.MergeFromWithOptimisticLock{})
		if err := r.Patch(ctx, changed, patch, client.FieldOwner(names.ManagerController)); err != nil {
			return fmt.Errorf("keeping DataVolume %s of VirtualMachine %s: %w", key, vm.Name, err)
		}
	}
	return nil
}

// disksGoing says whether a disk of an earlier VM of vm's name is still there. It is about
// to be collected, and vm would take it for its own.
func (r *Reconciler) disksGoing(ctx context.Context, vm *virtv1.VirtualMachine) (bool, error) {
	for i := range vm.Spec.DataVolumeTemplates {
		dv := &cdiv1.DataVolume{}
		key := client.ObjectKey{Namespace: vm.Namespace, Name: vm.Spec.DataVolumeTemplates[i].Name}
		if err := r.Get(ctx, key, dv); client.IgnoreNotFound(err) != nil {
			return false, fmt.Errorf("reading DataVolume %s: %w", key, err)
		}
		if machineOf(dv) == vm.Name {
			return true, nil
		}
	}
	return false, nil
}

// machineOf is the name of the VM that an object is of, or "".
func machineOf(object client.Object) string {
	owner := metav1.GetControllerOf(object)
	if owner == nil || owner.Kind != virtv1.VirtualMachineGroupVersionKind.Kind {
		return ""
	}
	return owner.Name
}

// poolFor is the pool that may have waited for the end of a disk.
func poolFor(_ context.Context, object client.Object) []ctrl.Request {
	name := machineOf(object)
	end := strings.LastIndexByte(name, '-')
	if end <= 0 {
		return nil
	}
	return []ctrl.Request{{NamespacedName: client.ObjectKey{Namespace: object.GetNamespace(), Name: name[:end]}}}
}
