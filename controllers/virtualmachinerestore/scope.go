package virtualmachinerestore

import (
	"context"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/utils/ptr"
	virtv1 "kubevirt.io/api/core/v1"
	snapshotv1 "kubevirt.io/api/snapshot/v1beta1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// scope is what one pass over a restore knows.
type scope struct {
	restore *snapshotv1.VirtualMachineRestore
	now     time.Time
	// vm is the target, nil while there is none; vmi what it runs as, nil when it does not. Set by read, lock and writeMachine.
	vm  *virtv1.VirtualMachine
	vmi *virtv1.VirtualMachineInstance
	// snapshot and content are what is restored; set by findSnapshot.
	snapshot *snapshotv1.VirtualMachineSnapshot
	content  *snapshotv1.VirtualMachineSnapshotContent
	// restores are the claims that are made, obsolete the DataVolumes that the VM will not have any more; as the status has
	// them, or set by recordVolumes.
	restores []snapshotv1.VolumeRestore
	obsolete []string
	// waiting and progress are what the pass ended with before its end, as the reasons of the conditions Ready and Progressing.
	waiting, progress string
	// failure says why the restore will never succeed.
	failure string
	// done says that nothing is left to do.
	done    bool
	problem *problem
	// again is when the next pass is to come that no event brings; 0 for no such.
	again time.Duration
	// gone says that the restore's finalizer was removed, so that nothing can be written to it.
	gone bool
}

// read reads what there is, past the caches; nil when the restore is gone.
func (r *Reconciler) read(ctx context.Context, key client.ObjectKey) (*scope, error) {
	s := &scope{restore: &snapshotv1.VirtualMachineRestore{}, now: r.now()}
	if found, err := r.get(ctx, key, s.restore); err != nil || !found {
		return nil, err
	}
	s.restores, s.obsolete = status(s.restore).Restores, status(s.restore).DeletedDataVolumes
	return s, r.readTarget(ctx, s)
}

func (r *Reconciler) readTarget(ctx context.Context, s *scope) error {
	key := client.ObjectKey{Namespace: s.restore.Namespace, Name: s.restore.Spec.Target.Name}
	vm, vmi := &virtv1.VirtualMachine{}, &virtv1.VirtualMachineInstance{}
	s.vm, s.vmi = nil, nil
	found, err := r.get(ctx, key, vm)
	if err != nil {
		return err
	}
	if found {
		s.vm = vm
	}
	if found, err = r.get(ctx, key, vmi); err != nil {
		return err
	}
	if found && !vmi.IsFinal() {
		s.vmi = vmi
	}
	return nil
}

// get reads an object past the caches, and says whether there is one.
func (r *Reconciler) get(ctx context.Context, key client.ObjectKey, into client.Object) (bool, error) {
	err := r.live.Get(ctx, key, into)
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("reading %T %s: %w", into, key, err)
	}
	return true, nil
}

func status(restore *snapshotv1.VirtualMachineRestore) snapshotv1.VirtualMachineRestoreStatus {
	return ptr.Deref(restore.Status, snapshotv1.VirtualMachineRestoreStatus{})
}

func completed(restore *snapshotv1.VirtualMachineRestore) bool {
	return ptr.Deref(status(restore).Complete, false)
}

// ended says whether nothing is done any more for restore.
func ended(restore *snapshotv1.VirtualMachineRestore) bool {
	for _, c := range status(restore).Conditions {
		if c.Type == snapshotv1.ConditionFailure && c.Status == "True" {
			return true
		}
	}
	return completed(restore)
}

// mark is the restore as what it made says it.
func mark(restore *snapshotv1.VirtualMachineRestore) string {
	return restore.Name + "-" + string(restore.UID)
}

// restored says whether the VM has the definition that is restored.
func (s *scope) restored() bool {
	return s.vm != nil && s.vm.Annotations[AnnotationLast] == mark(s.restore)
}

// locked says whether the VM is locked for this restore.
func (s *scope) locked() bool {
	return s.vm != nil && ptr.Deref(s.vm.Status.RestoreInProgress, "") == s.restore.Name
}

// policy is what is done about a VM that runs.
func (s *scope) policy() snapshotv1.TargetReadinessPolicy {
	return ptr.Deref(s.restore.Spec.TargetReadinessPolicy, snapshotv1.VirtualMachineRestoreWaitGracePeriodAndFail)
}

// grace is how long the VM may still run before the restore fails.
func (s *scope) grace() time.Duration {
	return s.restore.CreationTimestamp.Add(snapshotv1.DefaultGracePeriod).Sub(s.now)
}

// next says when there is to be a pass that no event brings.
func (s *scope) next() ctrl.Result {
	switch {
	case s.problem != nil:
		return ctrl.Result{RequeueAfter: retry}
	case s.again > 0:
		return ctrl.Result{RequeueAfter: s.again}
	case s.waiting == waitingForTarget && s.policy() == snapshotv1.VirtualMachineRestoreWaitGracePeriodAndFail:
		return ctrl.Result{RequeueAfter: max(s.grace(), time.Millisecond)}
	}
	return ctrl.Result{}
}
