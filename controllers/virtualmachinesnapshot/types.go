package virtualmachinesnapshot

import (
	"context"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	virtv1 "kubevirt.io/api/core/v1"
	snapshotv1 "kubevirt.io/api/snapshot/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-vm/slipway/controllers/instancetype"
	"github.com/slipway-vm/slipway/internal/names"
)

// keepTypes copies the revisions of the VM's instance type and preference: the content has them when the VM has others, or is gone.
func (r *Reconciler) keepTypes(ctx context.Context, s *scope) error {
	if s.content == nil || s.vm == nil || s.content.Spec.Source.VirtualMachine == nil {
		return nil
	}
	was := &s.content.Spec.Source.VirtualMachine.Status
	if err := r.copyType(ctx, s, s.vm.Status.InstancetypeRef, was.InstancetypeRef); err != nil {
		return err
	}
	return r.copyType(ctx, s, s.vm.Status.PreferenceRef, was.PreferenceRef)
}

// copyType makes the revision that to names, of the one that from does.
func (r *Reconciler) copyType(ctx context.Context, s *scope, from, to *virtv1.InstancetypeStatusRef) error {
	source, name := instancetype.RevisionOf(from), instancetype.RevisionOf(to)
	if source == "" || name == "" {
		return nil
	}
	revision := &appsv1.ControllerRevision{}
	found, err := r.get(ctx, client.ObjectKey{Namespace: s.vm.Namespace, Name: source}, revision)
	if err != nil {
		return err
	}
	if !found {
		return fail("ControllerRevision %s, which holds the VM's %s %s, is gone", source, from.Kind, from.Name)
	}
	kept := instancetype.Copy(revision, name)
	kept.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(s.content, snapshotv1.SchemeGroupVersion.WithKind(kindContent))}
	if err := r.Create(ctx, kept, client.FieldOwner(names.ManagerController)); err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("creating ControllerRevision %s: %w", client.ObjectKeyFromObject(kept), err)
	}
	return nil
}
