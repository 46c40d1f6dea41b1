package pool

import (
	"context"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	virtv1 "kubevirt.io/api/core/v1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
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
