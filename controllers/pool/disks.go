package pool

import (
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	virtv1 "kubevirt.io/api/core/v1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-vm/slipway/internal/names"
)

// keepDisks makes the disks of a VM that is to be deleted nobody's, so that they do not go with it. The next VM of its name
// finds them filled. One whose filling failed is no disk.
func (r *Reconciler) keepDisks(ctx context.Context, vm *virtv1.VirtualMachine) error {
	for i := range vm.Spec.DataVolumeTemplates {
		for _, disk := range disksOf(vm.Namespace, vm.Spec.DataVolumeTemplates[i].Name) {
			key := client.ObjectKeyFromObject(disk)
			err := r.live.Get(ctx, key, disk)
			if apierrors.IsNotFound(err) || err == nil && (!metav1.IsControlledBy(disk, vm) || notFilled(disk)) {
				continue
			}
			if err != nil {
				return fmt.Errorf("reading %T %s: %w", disk, key, err)
			}
			before, ok := disk.DeepCopyObject().(client.Object)
			if !ok {
				return fmt.Errorf("copying %T %s failed", disk, key)
			}
			disk.SetOwnerReferences(slices.DeleteFunc(disk.GetOwnerReferences(), func(owner metav1.OwnerReference) bool { return owner.UID == vm.UID }))
			patch := client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})
			if err := r.Patch(ctx, disk, patch, client.FieldOwner(names.ManagerController)); err != nil {
				return fmt.Errorf("keeping %T %s of VirtualMachine %s: %w", disk, key, vm.Name, err)
			}
		}
	}
	return nil
}

func notFilled(disk client.Object) bool {
	dv, ok := disk.(*cdiv1.DataVolume)
	return ok && dv.Status.Phase == cdiv1.Failed
}

// disksOf are what may hold the disk of a template: a DataVolume, or where that has gone after its success its claim.
func disksOf(namespace, name string) []client.Object {
	meta := metav1.ObjectMeta{Namespace: namespace, Name: name}
	return []client.Object{&cdiv1.DataVolume{ObjectMeta: meta}, &corev1.PersistentVolumeClaim{ObjectMeta: meta}}
}

// disksGoing says whether a disk of an earlier VM of vm's name is still there. It is about
// to be collected, and vm would take it for its own.
func (r *Reconciler) disksGoing(ctx context.Context, vm *virtv1.VirtualMachine) (bool, error) {
	for i := range vm.Spec.DataVolumeTemplates {
		for _, disk := range disksOf(vm.Namespace, vm.Spec.DataVolumeTemplates[i].Name) {
			key := client.ObjectKeyFromObject(disk)
			if err := r.Get(ctx, key, disk); client.IgnoreNotFound(err) != nil {
				return false, fmt.Errorf("reading %T %s: %w", disk, key, err)
			}
			if machineOf(disk) == vm.Name {
				return true, nil
			}
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
