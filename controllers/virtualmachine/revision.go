package virtualmachine

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	virtv1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-vm/slipway/internal/controllerrevision"
	"github.com/slipway-vm/slipway/internal/names"
)

// revisionPrefix begins the names of the ControllerRevisions that hold what VMs were
// started with.
const revisionPrefix = "revision-start-vm-"

func revisionName(vm *virtv1.VirtualMachine) string {
	return fmt.Sprintf("%s%s-%d", revisionPrefix, vm.UID, vm.Generation)
}

// revisionData is what a revision holds.
type revisionData struct {
	Spec   virtv1.VirtualMachineSpec `json:"spec"`
	Status startedStatus             `json:"status"`
}

// startedStatus is which instance type and preference the spec meant.
type startedStatus struct {
	InstancetypeRef *virtv1.InstancetypeStatusRef `json:"instancetypeRef,omitempty"`
	PreferenceRef   *virtv1.InstancetypeStatusRef `json:"preferenceRef,omitempty"`
}

// recordRevision writes down what the VM is about to be started with, and removes what it
// was started with before: nothing runs with that any more. It returns the revision's name.
func (r *Reconciler) recordRevision(ctx context.Context, s *scope) (string, error) {
	vm, name := s.vm, revisionName(s.vm)
	// Only names and owners are needed, and what the API server has now.
	list := &metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(appsv1.SchemeGroupVersion.WithKind("ControllerRevisionList"))
	if err := r.live.List(ctx, list, client.InNamespace(vm.Namespace)); err != nil {
		return "", fmt.Errorf("listing the ControllerRevisions of %s: %w", vm.Namespace, err)
	}
	found := false
	for i := range list.Items {
		revision := &list.Items[i]
		switch {
		case !metav1.IsControlledBy(revision, vm) || !strings.HasPrefix(revision.Name, revisionPrefix):
		case revision.Name == name:
			found = true
		default:
			old := &appsv1.ControllerRevision{ObjectMeta: metav1.ObjectMeta{Namespace: vm.Namespace, Name: revision.Name}}
			if err := r.Delete(ctx, old); client.IgnoreNotFound(err) != nil {
				return "", fmt.Errorf("deleting ControllerRevision %s/%s: %w", vm.Namespace, revision.Name, err)
			}
		}
	}
	if found {
		return name, nil
	}
	return name, r.writeRevision(ctx, s, name)
}

func (r *Reconciler) writeRevision(ctx context.Context, s *scope, name string) error {
	vm := s.vm
	data, err := controllerrevision.Data(&revisionData{Spec: vm.Spec, Status: startedStatus{
		InstancetypeRef: refOf(vm.Spec.Instancetype != nil, s.instancetype), PreferenceRef: refOf(vm.Spec.Preference != nil, s.preference),
	}})
	if err != nil {
		return fmt.Errorf("encoding the spec of VirtualMachine %s/%s: %w", vm.Namespace, vm.Name, err)
	}
	revision := &appsv1.ControllerRevision{
		ObjectMeta: metav1.ObjectMeta{
			Name: name, Namespace: vm.Namespace,
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(vm, virtv1.VirtualMachineGroupVersionKind)},
		},
		Data:     data,
		Revision: vm.Generation,
	}
	if err := r.Create(ctx, revision, client.FieldOwner(names.ManagerController)); err != nil {
		return fmt.Errorf("creating ControllerRevision %s/%s: %w", vm.Namespace, name, err)
	}
	return nil
}

// startedWith returns the VM as its instance was started with it; nil where that is not known, as of instances that an
// earlier version started. One that did not write down which instance type that was means the VM's own.
func (r *Reconciler) startedWith(ctx context.Context, s *scope) (*virtv1.VirtualMachine, error) {
	name := s.vmi.Status.VirtualMachineRevisionName
	if name == "" {
		return nil, nil
	}
	revision := &appsv1.ControllerRevision{}
	err := r.live.Get(ctx, client.ObjectKey{Namespace: s.vm.Namespace, Name: name}, revision)
	if apierrors.IsNotFound(err) || err == nil && !metav1.IsControlledBy(revision, s.vm) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading ControllerRevision %s/%s: %w", s.vm.Namespace, name, err)
	}
	var data revisionData
	if err := json.Unmarshal(revision.Data.Raw, &data); err != nil {
		return nil, fmt.Errorf("reading ControllerRevision %s/%s: %w", s.vm.Namespace, name, err)
	}
	vm := s.vm.DeepCopy()
	vm.Spec = data.Spec
	if was := data.Status.InstancetypeRef; was != nil {
		vm.Status.InstancetypeRef = was
	}
	if was := data.Status.PreferenceRef; was != nil {
		vm.Status.PreferenceRef = was
	}
	return vm, nil
}
