// Package keep is how the volumes of a VirtualMachine outlive it, where it asks for that, and how its definition is
// recorded, so that it can be brought back.
package keep

import (
	"encoding/json"
	"fmt"
	"maps"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	virtv1 "kubevirt.io/api/core/v1"

	"github.com/slipway-vm/slipway/internal/controllerrevision"
	"github.com/slipway-vm/slipway/internal/names"
)

const (
	// AnnotationVolumes on a VM, with the value "true", keeps its volumes when it is deleted.
	AnnotationVolumes = names.Domain + "keep-volumes"
	// AnnotationRecord on a VM is the ControllerRevision that it was brought back from, until it has its volumes.
	AnnotationRecord = names.Domain + "undeleted-from"
	// LabelFor on a DataVolume or claim is the uid of the VM that it is kept for.
	LabelFor = names.Domain + "kept-for"
	// LabelRecord on a ControllerRevision, with the value "true", says that it holds a deleted VM.
	LabelRecord = names.Domain + "deleted-vm"
)

// Volumes says whether the volumes of vm are to outlive it.
func Volumes(vm metav1.Object) bool { return vm.GetAnnotations()[AnnotationVolumes] == "true" }

// Give gives a new volume to vm: to be kept for it where it asks for that, else to go with it.
func Give(volume metav1.Object, vm *virtv1.VirtualMachine) {
	if Volumes(vm) {
		For(volume, vm.UID)
		return
	}
	volume.SetOwnerReferences(append(volume.GetOwnerReferences(), *metav1.NewControllerRef(vm, virtv1.VirtualMachineGroupVersionKind)))
}

// For labels volume as kept for the VM of uid.
func For(volume metav1.Object, uid types.UID) {
	labels := maps.Clone(volume.GetLabels())
	if labels == nil {
		labels = map[string]string{}
	}
	labels[LabelFor] = string(uid)
	volume.SetLabels(labels)
}

// ForAnother says whether volume is kept for another VM than that of uid.
func ForAnother(volume metav1.Object, uid types.UID) bool {
	kept := volume.GetLabels()[LabelFor]
	return kept != "" && kept != string(uid)
}

// machine is what a record holds.
type machine struct {
	Metadata metav1.ObjectMeta         `json:"metadata"`
	Spec     virtv1.VirtualMachineSpec `json:"spec"`
}

// Record makes the record of vm, which belongs to nobody.
func Record(vm *virtv1.VirtualMachine) (*appsv1.ControllerRevision, error) {
	annotations := maps.Clone(vm.Annotations)
	for _, passing := range []string{AnnotationRecord, corev1.LastAppliedConfigAnnotation} {
		delete(annotations, passing)
	}
	data, err := controllerrevision.Data(&machine{
		Metadata: metav1.ObjectMeta{Name: vm.Name, Namespace: vm.Namespace, UID: vm.UID, Labels: vm.Labels, Annotations: annotations},
		Spec:     vm.Spec,
	})
	if err != nil {
		return nil, fmt.Errorf("recording VirtualMachine %s/%s: %w", vm.Namespace, vm.Name, err)
	}
	return &appsv1.ControllerRevision{
		ObjectMeta: metav1.ObjectMeta{Namespace: vm.Namespace, Name: "deleted-vm-" + string(vm.UID), Labels: map[string]string{LabelRecord: "true"}},
		Data:       data, Revision: vm.Generation,
	}, nil
}

// Recorded is the VM that record holds, as it was, with its uid.
func Recorded(record *appsv1.ControllerRevision) (*virtv1.VirtualMachine, error) {
	var was machine
	if err := json.Unmarshal(record.Data.Raw, &was); err != nil {
		return nil, fmt.Errorf("reading ControllerRevision %s/%s: %w", record.Namespace, record.Name, err)
	}
	if record.Labels[LabelRecord] != "true" || was.Metadata.Name == "" || was.Metadata.UID == "" {
		return nil, fmt.Errorf("ControllerRevision %s/%s holds no deleted VirtualMachine", record.Namespace, record.Name)
	}
	return &virtv1.VirtualMachine{ObjectMeta: was.Metadata, Spec: was.Spec}, nil
}

// Again makes the VM that is brought back from record.
func Again(record *appsv1.ControllerRevision) (*virtv1.VirtualMachine, error) {
	vm, err := Recorded(record)
	if err != nil {
		return nil, err
	}
	vm.Namespace, vm.UID = record.Namespace, ""
	if vm.Annotations == nil {
		vm.Annotations = map[string]string{}
	}
	vm.Annotations[AnnotationRecord] = record.Name
	return vm, nil
}
