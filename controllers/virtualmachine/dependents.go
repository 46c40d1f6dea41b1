package virtualmachine

import (
	"context"
	"fmt"
	"maps"
	"reflect"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	virtv1 "kubevirt.io/api/core/v1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-vm/slipway/controllers/virtualmachineinstance/pod"
	"github.com/slipway-vm/slipway/internal/keep"
	"github.com/slipway-vm/slipway/internal/names"
)

// dependentKinds are what Slipway makes for VMs: their disks and states, and what they were
// started with.
var dependentKinds = []schema.GroupVersionKind{
	cdiv1.SchemeGroupVersion.WithKind("DataVolume"),
	corev1.SchemeGroupVersion.WithKind("PersistentVolumeClaim"),
	appsv1.SchemeGroupVersion.WithKind("ControllerRevision"),
}

// handover is of what belongs to one VM, to another one.
type handover struct {
	from, to *virtv1.VirtualMachine
	// keep lets from stay an owner beside, so that nothing is collected whichever of the two is
	// deleted before the other has all.
	keep bool
}

// do hands over what there is. What has been handed over is left as it is.
func (h handover) do(ctx context.Context, r *Reconciler) error {
	for _, kind := range dependentKinds {
		list := &metav1.PartialObjectMetadataList{}
		list.SetGroupVersionKind(kind.GroupVersion().WithKind(kind.Kind + "List"))
		if err := r.live.List(ctx, list, client.InNamespace(h.from.Namespace)); err != nil {
			return fmt.Errorf("listing what is VirtualMachine %s/%s's of kind %s: %w", h.from.Namespace, h.from.Name, kind.Kind, err)
		}
		for i := range list.Items {
			object := &list.Items[i]
			object.SetGroupVersionKind(kind)
			changed := h.changed(object)
			if changed == nil {
				continue
			}
			patch := client.MergeFromWithOptions(object, client.MergeFromWithOptimisticLock{})
			if err := r.Patch(ctx, changed, patch, client.FieldOwner(names.ManagerController)); client.IgnoreNotFound(err) != nil {
				return fmt.Errorf("giving %s %s/%s to VirtualMachine %s: %w", kind.Kind, object.Namespace, object.Name, h.to.Name, err)
			}
		}
	}
	return nil
}

// changed is object as it is to be; nil when it is not from's, or is to's already.
func (h handover) changed(object *metav1.PartialObjectMetadata) *metav1.PartialObjectMetadata {
	changed := object.DeepCopy()
	changed.OwnerReferences = h.owners(changed.OwnerReferences)
	changed.Labels = h.labels(changed)
	if reflect.DeepEqual(changed, object) {
		return nil
	}
	return changed
}

// owners puts to in from's place among owners.
func (h handover) owners(owners []metav1.OwnerReference) []metav1.OwnerReference {
	at, there := place(owners, h.from.UID), place(owners, h.to.UID)
	if at < 0 || h.keep && there >= 0 {
		return owners
	}
	owners = slices.Clone(owners)
	next := owners[at]
	next.Name, next.UID = h.to.Name, h.to.UID
	owners[at].Controller, owners[at].BlockOwnerDeletion = nil, nil
	if there >= 0 {
		owners[there] = next
	} else {
		owners = append(owners, next)
	}
	if !h.keep {
		owners = slices.Delete(owners, at, at+1)
	}
	return owners
}

func place(owners []metav1.OwnerReference, uid types.UID) int {
	return slices.IndexFunc(owners, func(owner metav1.OwnerReference) bool { return owner.UID == uid })
}

// labels are those of object, as to's. The claim of a state is a VM's by a label, and may have no owner.
func (h handover) labels(object *metav1.PartialObjectMetadata) map[string]string {
	labels := maps.Clone(object.Labels)
	owned := place(object.OwnerReferences, h.from.UID) >= 0 || place(object.OwnerReferences, h.to.UID) >= 0
	if owned && labels[virtv1.CreatedByLabel] == string(h.from.UID) {
		labels[virtv1.CreatedByLabel] = string(h.to.UID)
	}
	if labels[keep.LabelFor] == string(h.from.UID) {
		labels[keep.LabelFor] = string(h.to.UID)
		if labels[virtv1.CreatedByLabel] == string(h.from.UID) {
			labels[virtv1.CreatedByLabel] = string(h.to.UID)
		}
	}
	earlier := keep.ForAnother(object, h.from.UID) && keep.ForAnother(object, h.to.UID) // an earlier VM of the name left it
	if isStateOf(object, h.from) && !earlier && (owned || metav1.GetControllerOf(object) == nil) {
		maps.Copy(labels, stateLabels(h.to.Name))
	}
	return labels
}

// isStateOf says whether object is labelled as the claim of what vm keeps beside its disks.
func isStateOf(object *metav1.PartialObjectMetadata, vm *virtv1.VirtualMachine) bool {
	return object.Kind == "PersistentVolumeClaim" && object.Labels[names.LabelState] == stateLabels(vm.Name)[names.LabelState]
}

func stateLabels(vm string) map[string]string {
	return pod.StateLabels(&virtv1.VirtualMachineInstance{ObjectMeta: metav1.ObjectMeta{Name: vm}})
}
