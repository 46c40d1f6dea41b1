package virtualmachinetemplaterequest

import (
	"context"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	virtv1 "kubevirt.io/api/core/v1"
	snapshotv1 "kubevirt.io/api/snapshot/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/slipway-vm/slipway/controllers/instancetype"
	"github.com/slipway-vm/slipway/controllers/virtualmachinesnapshot"
	vmtemplatev1beta1 "github.com/slipway-vm/slipway/internal/api/virtualmachinetemplate/v1beta1"
	"github.com/slipway-vm/slipway/internal/names"
	"github.com/slipway-vm/slipway/internal/steps"
)

// checkMade refuses what others made under a name of the request's.
func (r *Reconciler) checkMade(_ context.Context, s *scope) error {
	switch s.foreign.(type) {
	case nil:
		return nil
	case *vmtemplatev1beta1.VirtualMachineTemplate:
		return fail("existing VirtualMachineTemplate %s was not created by this request; delete it, or make a request with another spec.templateName",
			client.ObjectKeyFromObject(s.foreign))
	}
	return fail("VirtualMachineSnapshot %s does not belong to this request; delete it, and make the request again", client.ObjectKeyFromObject(s.foreign))
}

// findSource finds the VM, and looks whether all of its disks can be taken.
func (r *Reconciler) findSource(ctx context.Context, s *scope) error {
	if s.snapshot != nil {
		return nil
	}
	vm, key := &virtv1.VirtualMachine{}, machineOf(s.request)
	found, err := r.get(ctx, key, vm)
	switch {
	case err != nil:
		return err
	case !found:
		return wait("Waiting for VirtualMachine %s to be created", key)
	case vm.Spec.Template == nil:
		return fail("VirtualMachine %s has no template", key)
	}
	lacks, err := virtualmachinesnapshot.Lacks(ctx, r.live, vm)
	if err != nil {
		return err //nolint:wrapcheck // it says what was looked for
	}
	if lacks != nil {
		return poll("%v", lacks)
	}
	return nil
}

// hold keeps the request until what is made for it is its template's, or removed.
func (r *Reconciler) hold(ctx context.Context, s *scope) error {
	return r.change(ctx, s.request, func() { controllerutil.AddFinalizer(s.request, vmtemplatev1beta1.FinalizerRequest) })
}

// takeSnapshot asks for a snapshot of the VM.
func (r *Reconciler) takeSnapshot(ctx context.Context, s *scope) error {
	if s.snapshot != nil {
		return nil
	}
	snapshot := newSnapshot(s.request)
	err := r.Create(ctx, snapshot, client.FieldOwner(names.ManagerController))
	switch {
	case refused(err):
		return poll("creating VirtualMachineSnapshot %s: %v", client.ObjectKeyFromObject(snapshot), err)
	case err != nil:
		return fmt.Errorf("creating VirtualMachineSnapshot %s: %w", client.ObjectKeyFromObject(snapshot), err)
	}
	s.snapshot = snapshot
	return nil
}

// refused says whether the API server does not take what was asked for, such as for a quota.
func refused(err error) bool {
	return apierrors.IsInvalid(err) || apierrors.IsForbidden(err) || apierrors.IsBadRequest(err)
}

// newSnapshot makes the snapshot of request's VM. It may be in another namespace, so no owner takes it along.
func newSnapshot(request *vmtemplatev1beta1.VirtualMachineTemplateRequest) *snapshotv1.VirtualMachineSnapshot {
	vm := machineOf(request)
	return &snapshotv1.VirtualMachineSnapshot{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: vm.Namespace, Name: snapshotName(request.UID), Labels: map[string]string{vmtemplatev1beta1.LabelRequest: string(request.UID)},
		},
		Spec: snapshotv1.VirtualMachineSnapshotSpec{
			Source: corev1.TypedLocalObjectReference{APIGroup: new(virtv1.GroupVersion.Group), Kind: kindMachine, Name: vm.Name},
		},
	}
}

// awaitSnapshot waits until the snapshot is ready, with all of the VM's disks.
func (r *Reconciler) awaitSnapshot(ctx context.Context, s *scope) error {
	key := client.ObjectKeyFromObject(s.snapshot)
	switch status := s.snapshot.Status; {
	case s.snapshot.DeletionTimestamp != nil:
		return fail("VirtualMachineSnapshot %s is being deleted", key)
	case status != nil && status.Phase == snapshotv1.Failed:
		return fail("VirtualMachineSnapshot %s failed: %s", key, virtualmachinesnapshot.Said(status.Conditions, snapshotv1.ConditionFailure))
	case !virtualmachinesnapshot.Ready(s.snapshot):
		s.waits = fmt.Sprintf("Waiting for VirtualMachineSnapshot %s to be ready", key)
		if status != nil {
			s.waits = and(s.waits, virtualmachinesnapshot.Said(status.Conditions, snapshotv1.ConditionProgressing))
		}
		return steps.ErrDone
	}
	content := &snapshotv1.VirtualMachineSnapshotContent{}
	at := client.ObjectKey{Namespace: key.Namespace, Name: virtualmachinesnapshot.ContentName(s.snapshot)}
	found, err := r.get(ctx, at, content)
	if err != nil {
		return err
	}
	switch was := content.Spec.Source.VirtualMachine; {
	case !found:
		return fail("VirtualMachineSnapshotContent %s does not exist", at)
	case was == nil || was.Spec.Template == nil:
		return fail("VirtualMachineSnapshotContent %s holds no VirtualMachine", at)
	}
	if missing := virtualmachinesnapshot.NotTaken(content); len(missing) > 0 {
		return fail("VirtualMachineSnapshot %s has no disks of the volumes %s", key, strings.Join(missing, ", "))
	}
	s.content = content
	return nil
}

// and is text with more about it, where there is more.
func and(text, more string) string {
	if more == "" {
		return text
	}
	return text + ": " + more
}

// plan makes up the template.
func (r *Reconciler) plan(ctx context.Context, s *scope) error {
	was := s.content.Spec.Source.VirtualMachine
	vm := &virtv1.VirtualMachine{ObjectMeta: *was.ObjectMeta.DeepCopy(), Spec: *was.Spec.DeepCopy(), Status: was.Status}
	vm.Namespace = s.content.Namespace
	// What it refers to may be of its own namespace, and its revisions are.
	err := instancetype.Resolver{Reader: r.live}.Expand(ctx, vm)
	if reason := apierrors.ReasonForError(err); err != nil && reason != metav1.StatusReasonUnknown && reason != metav1.StatusReasonNotFound {
		return fmt.Errorf("expanding VirtualMachine %s: %w", client.ObjectKeyFromObject(vm), err)
	}
	if err != nil {
		return fail("expanding VirtualMachine %s: %v", client.ObjectKeyFromObject(vm), err)
	}
	s.planned, err = newTemplate(s.request, &vm.Spec, copied(s.content))
	return err
}
