package virtualmachinesnapshot

import (
	"context"
	"fmt"
	"time"

	csiv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	virtv1 "kubevirt.io/api/core/v1"
	snapshotv1 "kubevirt.io/api/snapshot/v1beta1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// scope is what one pass over a snapshot knows.
type scope struct {
	snapshot *snapshotv1.VirtualMachineSnapshot
	now      time.Time
	// content is nil while there is none; set by read and makeContent.
	content *snapshotv1.VirtualMachineSnapshotContent
	// vm is the source, nil when it is not there; vmi what it runs as, nil when it does not.
	vm  *virtv1.VirtualMachine
	vmi *virtv1.VirtualMachineInstance
	// volumes are the VolumeSnapshots that exist, by name; set by readVolumes and takeVolumes.
	volumes map[string]*csiv1.VolumeSnapshot
	// blocked says why the VM is not locked; set by lock.
	blocked string
	// cut says that the guest went on before it was let; set by settle.
	cut     bool
	problem *problem
	// gone says that the snapshot's finalizer was removed, so that nothing can be written to it.
	gone bool
}

// read reads what there is, past the caches; nil when the snapshot is gone.
func (r *Reconciler) read(ctx context.Context, key client.ObjectKey) (*scope, error) {
	s := &scope{snapshot: &snapshotv1.VirtualMachineSnapshot{}, now: r.now()}
	if found, err := r.get(ctx, key, s.snapshot); err != nil || !found {
		return nil, err
	}
	content := &snapshotv1.VirtualMachineSnapshotContent{}
	found, err := r.get(ctx, client.ObjectKey{Namespace: key.Namespace, Name: ContentName(s.snapshot)}, content)
	if err != nil {
		return nil, err
	}
	if found {
		s.content = content
	}
	source := client.ObjectKey{Namespace: key.Namespace, Name: s.snapshot.Spec.Source.Name}
	vm := &virtv1.VirtualMachine{}
	if found, err = r.get(ctx, source, vm); err != nil {
		return nil, err
	}
	if uid := status(s.snapshot).SourceUID; !found || uid != nil && *uid != vm.UID {
		return s, nil
	}
	s.vm = vm
	vmi := &virtv1.VirtualMachineInstance{}
	if found, err = r.get(ctx, source, vmi); err != nil {
		return nil, err
	}
	if found && metav1.IsControlledBy(vmi, vm) && !vmi.IsFinal() {
		s.vmi = vmi
	}
	return s, nil
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

// status is what was written of snapshot, empty when nothing was.
func status(snapshot *snapshotv1.VirtualMachineSnapshot) snapshotv1.VirtualMachineSnapshotStatus {
	return ptr.Deref(snapshot.Status, snapshotv1.VirtualMachineSnapshotStatus{})
}

// ended says whether nothing is done any more to take snapshot.
func ended(snapshot *snapshotv1.VirtualMachineSnapshot) bool {
	phase := status(snapshot).Phase
	return phase == snapshotv1.Succeeded || phase == snapshotv1.Failed
}

// Ready says whether a VM can be restored from snapshot.
func Ready(snapshot *snapshotv1.VirtualMachineSnapshot) bool {
	return ptr.Deref(status(snapshot).ReadyToUse, false)
}

// ContentName is the name of snapshot's content.
func ContentName(snapshot *snapshotv1.VirtualMachineSnapshot) string {
	if name := status(snapshot).VirtualMachineSnapshotContentName; name != nil {
		return *name
	}
	return "vmsnapshot-content-" + string(snapshot.UID)
}

// made says whether all of the content's disks were taken.
func made(content *snapshotv1.VirtualMachineSnapshotContent) bool {
	return content != nil && content.Status != nil && content.Status.CreationTime != nil
}

// ContentReady says whether a VM can be restored from content.
func ContentReady(content *snapshotv1.VirtualMachineSnapshotContent) bool {
	return content != nil && content.Status != nil && ptr.Deref(content.Status.ReadyToUse, false)
}

// succeeded says whether the snapshot is taken.
func (s *scope) succeeded() bool {
	return status(s.snapshot).Phase == snapshotv1.Succeeded || made(s.content) && status(s.snapshot).Phase != snapshotv1.Failed
}

// expired says whether the snapshot has failed, or has taken longer than it may.
func (s *scope) expired() bool {
	if status(s.snapshot).Phase == snapshotv1.Failed {
		return true
	}
	left, limited := s.left()
	return limited && left <= 0 && !s.succeeded()
}

// deadline is how long the snapshot may take; 0 for ever.
func (s *scope) deadline() time.Duration {
	if given := s.snapshot.Spec.FailureDeadline; given != nil {
		return given.Duration
	}
	return snapshotv1.DefaultFailureDeadline
}

// left is how long it may still take; limited says whether there is an end to that.
func (s *scope) left() (left time.Duration, limited bool) {
	deadline := s.deadline()
	return s.snapshot.CreationTimestamp.Add(deadline).Sub(s.now), deadline != 0
}

// next says when there is to be a pass that no event brings.
func (s *scope) next() ctrl.Result {
	if s.expired() || s.succeeded() {
		return ctrl.Result{}
	}
	left, limited := s.left()
	if (s.blocked != "" || s.problem != nil) && (!limited || left > retry) {
		return ctrl.Result{RequeueAfter: retry}
	}
	if limited {
		return ctrl.Result{RequeueAfter: max(left, time.Millisecond)}
	}
	return ctrl.Result{}
}

// locked says whether the VM is locked for this snapshot.
func (s *scope) locked() bool {
	return s.vm != nil && ptr.Deref(s.vm.Status.SnapshotInProgress, "") == s.snapshot.Name
}

// has says whether the VM's instance has a condition.
func (s *scope) has(kind virtv1.VirtualMachineInstanceConditionType) bool {
	if s.vmi == nil {
		return false
	}
	for _, c := range s.vmi.Status.Conditions {
		if c.Type == kind && c.Status == corev1.ConditionTrue {
			return true
		}
	}
	return false
}

// quiesced says whether the guest can be made to stand still, and let go on.
func (s *scope) quiesced() bool {
	return s.has(virtv1.VirtualMachineInstanceAgentConnected) && !s.has(virtv1.VirtualMachineInstancePaused)
}
