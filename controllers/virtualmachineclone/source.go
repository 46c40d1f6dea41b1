package virtualmachineclone

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clonev1 "kubevirt.io/api/clone/v1beta1"
	virtv1 "kubevirt.io/api/core/v1"
	snapshotv1 "kubevirt.io/api/snapshot/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-vm/slipway/controllers/virtualmachineinstance/pod"
	"github.com/slipway-vm/slipway/controllers/virtualmachinesnapshot"
	"github.com/slipway-vm/slipway/internal/names"
	"github.com/slipway-vm/slipway/internal/steps"
)

// checkMade refuses what others made under a name of the clone's.
func (r *Reconciler) checkMade(_ context.Context, s *scope) error {
	if s.foreign == nil {
		return nil
	}
	return fail(reasonForeign, "%s exists and is not clone %s's; delete it and the clone, and make the clone again", s.foreign.GetName(), s.clone.Name)
}

// checkTarget waits while the target's name is another VM's.
func (r *Reconciler) checkTarget(_ context.Context, s *scope) error {
	if s.begun() || s.target == nil {
		return nil
	}
	return wait(reasonRestoreNotMade, "VirtualMachine %s exists; delete it, or make a clone with another name in spec.target", s.target.Name)
}

// findSource finds what is cloned, and looks whether it can be.
func (r *Reconciler) findSource(ctx context.Context, s *scope) error {
	if s.begun() || s.snapshot != nil {
		return nil
	}
	if s.clone.Status.SnapshotName != nil {
		return fail(reasonSnapshotDeleted, "snapshot %s does not exist anymore", *s.clone.Status.SnapshotName)
	}
	vm := &virtv1.VirtualMachine{}
	key := client.ObjectKey{Namespace: s.clone.Namespace, Name: s.clone.Spec.Source.Name}
	found := false
	if ofMachine(s.clone) {
		var err error
		if found, err = r.get(ctx, key, vm); err != nil {
			return err
		}
	}
	switch {
	case !found:
		return wait(reasonNoSource, "Source doesnt exist: %s %s", s.clone.Spec.Source.Kind, key)
	case vm.Spec.Template == nil:
		return fail(reasonContent, "VirtualMachine %s has no template", key)
	}
	state, err := virtualmachinesnapshot.State(ctx, r.live, vm) // a preference may ask for it
	switch {
	case err != nil:
		return err //nolint:wrapcheck // it says what was looked for
	case stateful(&vm.Spec), state != nil:
		return fail(reasonKeepsState, "%s", keepsState("VM "+key.String()))
	}
	return r.checkVolumes(ctx, vm)
}

// stateful says whether the guest of a VM is to keep something beside its disks.
func stateful(spec *virtv1.VirtualMachineSpec) bool {
	return pod.KeepsState(&virtv1.VirtualMachineInstance{Spec: spec.Template.Spec})
}

// checkVolumes waits until a snapshot of vm would leave no disk out.
func (r *Reconciler) checkVolumes(ctx context.Context, vm *virtv1.VirtualMachine) error {
	lacks, err := virtualmachinesnapshot.Lacks(ctx, r.live, vm)
	if err != nil {
		return err //nolint:wrapcheck // it says what was looked for
	}
	if lacks != nil {
		return poll(reasonVolumes, "%v", lacks)
	}
	return nil
}

// takeSnapshot asks for a snapshot of the VM that is cloned.
func (r *Reconciler) takeSnapshot(ctx context.Context, s *scope) error {
	if s.begun() || s.snapshot != nil {
		return nil
	}
	snapshot := newSnapshot(s.clone)
	err := r.Create(ctx, snapshot, client.FieldOwner(names.ManagerController))
	switch {
	case refused(err):
		return poll(reasonSnapshotFailed, "failed creating snapshot %s for clone %s: %v", snapshot.Name, s.clone.Name, err)
	case err != nil:
		return fmt.Errorf("creating VirtualMachineSnapshot %s: %w", client.ObjectKeyFromObject(snapshot), err)
	}
	s.snapshot = snapshot
	r.normal(s, reasonSnapshotCreated, "created snapshot %s for clone %s", snapshot.Name, s.clone.Name)
	return steps.ErrDone // its change is watched
}

// refused says whether the API server does not take what was asked for, such as for a quota.
func refused(err error) bool {
	return apierrors.IsInvalid(err) || apierrors.IsForbidden(err) || apierrors.IsBadRequest(err)
}

// newSnapshot makes the snapshot of clone's source, which goes with clone.
func newSnapshot(clone *clonev1.VirtualMachineClone) *snapshotv1.VirtualMachineSnapshot {
	return &snapshotv1.VirtualMachineSnapshot{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: clone.Namespace, Name: snapshotName(clone),
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(clone, clonev1.VirtualMachineCloneKind)},
		},
		Spec: snapshotv1.VirtualMachineSnapshotSpec{Source: machineRef(clone.Spec.Source.Name)},
	}
}

func machineRef(name string) corev1.TypedLocalObjectReference {
	return corev1.TypedLocalObjectReference{APIGroup: new(virtv1.GroupVersion.Group), Kind: kindMachine, Name: name}
}

// awaitSnapshot waits until a VM can be made from the snapshot, with all of its disks.
func (r *Reconciler) awaitSnapshot(ctx context.Context, s *scope) error {
	if s.begun() {
		return nil
	}
	name := s.snapshot.Name
	switch {
	case s.snapshot.DeletionTimestamp != nil:
		return fail(reasonSnapshotDeleted, "snapshot %s is being deleted", name)
	case s.snapshot.Status == nil:
		return steps.ErrDone
	case s.snapshot.Status.Phase == snapshotv1.Failed:
		return fail(reasonSnapshotFailed, "snapshot %s failed: %s", name, virtualmachinesnapshot.Said(s.snapshot.Status.Conditions, snapshotv1.ConditionFailure))
	case !virtualmachinesnapshot.Ready(s.snapshot):
		s.waits = fmt.Sprintf("snapshot %s: %s", name, virtualmachinesnapshot.Said(s.snapshot.Status.Conditions, snapshotv1.ConditionProgressing))
		return steps.ErrDone
	}
	content := &snapshotv1.VirtualMachineSnapshotContent{}
	key := client.ObjectKey{Namespace: s.clone.Namespace, Name: virtualmachinesnapshot.ContentName(s.snapshot)}
	found, err := r.get(ctx, key, content)
	if err != nil {
		return err
	}
	if !found {
		return fail(reasonContent, "snapshot content %s in namespace %s does not exist", key.Name, key.Namespace)
	}
	if err := checkContent(s.snapshot, content); err != nil {
		return err
	}
	s.content = content
	return nil
}

// checkContent refuses a content that holds less than a whole VM.
func checkContent(snapshot *snapshotv1.VirtualMachineSnapshot, content *snapshotv1.VirtualMachineSnapshotContent) error {
	was := content.Spec.Source.VirtualMachine
	switch {
	case was == nil || was.Spec.Template == nil:
		return fail(reasonContent, "snapshot content %s holds no VirtualMachine", content.Name)
	case stateful(&was.Spec), virtualmachinesnapshot.StateOf(content) != nil, virtualmachinesnapshot.LeavesState(snapshot, content):
		return fail(reasonContent, "%s", keepsState("snapshot "+client.ObjectKeyFromObject(snapshot).String()))
	}
	var missing []error
	for _, volume := range virtualmachinesnapshot.NotTaken(content) {
		missing = append(missing, fmt.Errorf("volume %s is not backed up in snapshot %s", volume, snapshot.Name))
	}
	if len(missing) > 0 {
		return fail(reasonContent, "%v", errors.Join(missing...))
	}
	return nil
}
