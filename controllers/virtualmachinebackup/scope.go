package virtualmachinebackup

import (
	"context"
	"fmt"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/utils/ptr"
	backupv1 "kubevirt.io/api/backup/v1alpha1"
	virtv1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/slipway-vm/slipway/internal/backup"
)

const kindTracker = "VirtualMachineBackupTracker"

// scope is what one pass over a backup knows.
type scope struct {
	backup *backupv1.VirtualMachineBackup
	now    time.Time
	// tracker is the backup's, nil for none, or while there is none; machine is the name of the VM, "" while nobody knows.
	tracker *backupv1.VirtualMachineBackupTracker
	machine string
	// vm and vmi are nil while there are none.
	vm  *virtv1.VirtualMachine
	vmi *virtv1.VirtualMachineInstance
	// asked is what the VMI is asked for, of whatever backup; nil for nothing. request changes it.
	asked *backup.Request
	// told is what the VMI's status tells of this backup, and target of the volume that it is written to; nil for nothing. Set by follow.
	told   *virtv1.VirtualMachineInstanceBackupStatus
	target *virtv1.VolumeStatus
	// done says that the backup is whole, and its tracker knows; set by keepCheckpoint.
	done     bool
	obstacle *obstacle
	// gone says that the backup's finalizer was removed, so that nothing can be written to it.
	gone bool
}

// obstacle is what the user has to know: what the backup waits for, or why it has failed.
type obstacle struct {
	// reason is that of a failure; of one that waits it is empty.
	reason, message string
}

// Error is for the user.
func (o *obstacle) Error() string { return o.message }

func fail(reason, format string, args ...any) error {
	return &obstacle{reason: reason, message: fmt.Sprintf(format, args...)}
}

func wait(format string, args ...any) error {
	return &obstacle{message: fmt.Sprintf(format, args...)}
}

// read reads the backup and what it is of; nil when it is gone.
func (r *Reconciler) read(ctx context.Context, key client.ObjectKey) (*scope, error) {
	s := &scope{backup: &backupv1.VirtualMachineBackup{}, now: r.now()}
	if found, err := r.get(ctx, key, s.backup); err != nil || !found {
		return nil, err
	}
	s.machine = s.backup.Spec.Source.Name
	if byTracker(s.backup) {
		tracker := &backupv1.VirtualMachineBackupTracker{}
		found, err := r.get(ctx, client.ObjectKey{Namespace: key.Namespace, Name: s.machine}, tracker)
		if err != nil {
			return nil, err
		}
		s.machine = ""
		if found {
			s.tracker, s.machine = tracker, tracker.Spec.Source.Name
		}
	}
	return s, r.readMachine(ctx, s)
}

// readMachine reads the VM and its instance. Of a tracker that is gone nobody knows whose it was, but by what is asked for.
func (r *Reconciler) readMachine(ctx context.Context, s *scope) error {
	if s.machine == "" {
		return r.findInstance(ctx, s)
	}
	key := client.ObjectKey{Namespace: s.backup.Namespace, Name: s.machine}
	vm, vmi := &virtv1.VirtualMachine{}, &virtv1.VirtualMachineInstance{}
	if found, err := r.get(ctx, key, vm); err != nil {
		return err
	} else if found {
		s.vm = vm
	}
	if found, err := r.get(ctx, key, vmi); err != nil {
		return err
	} else if found {
		s.take(vmi)
	}
	return nil
}

// findInstance finds the instance that the backup is asked of.
func (r *Reconciler) findInstance(ctx context.Context, s *scope) error {
	if !held(s.backup) {
		return nil
	}
	all := &virtv1.VirtualMachineInstanceList{}
	if err := r.live.List(ctx, all, client.InNamespace(s.backup.Namespace)); err != nil {
		return fmt.Errorf("listing the VirtualMachineInstances of %s: %w", s.backup.Namespace, err)
	}
	for i := range all.Items {
		if request, err := backup.Requested(&all.Items[i]); err == nil && request != nil && request.UID == s.backup.UID {
			s.machine = all.Items[i].Name
			s.take(&all.Items[i])
		}
	}
	return nil
}

func (s *scope) take(vmi *virtv1.VirtualMachineInstance) {
	s.vmi = vmi
	s.asked, _ = backup.Requested(vmi) // what nobody can read is written over
}

// get reads an object past the cache, and says whether it is there.
func (r *Reconciler) get(ctx context.Context, key client.ObjectKey, object client.Object) (bool, error) {
	err := r.live.Get(ctx, key, object)
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("reading %T %s: %w", object, key, err)
	}
	return true, nil
}

func byTracker(b *backupv1.VirtualMachineBackup) bool { return b.Spec.Source.Kind == kindTracker }

func claimOf(b *backupv1.VirtualMachineBackup) string { return ptr.Deref(b.Spec.PvcName, "") }

func held(b *backupv1.VirtualMachineBackup) bool {
	return controllerutil.ContainsFinalizer(b, Finalizer)
}

// over says whether b is whole, or has failed.
func over(b *backupv1.VirtualMachineBackup) bool {
	return b.Status != nil && (meta.IsStatusConditionTrue(b.Status.Conditions, string(backupv1.ConditionComplete)) ||
		meta.IsStatusConditionTrue(b.Status.Conditions, string(backupv1.ConditionFailed)))
}

// ours says whether what the VMI is asked for is this backup.
func (s *scope) ours() bool { return s.asked != nil && s.asked.UID == s.backup.UID }

// begun says whether the VMI was asked for the backup, now or before.
func (s *scope) begun() bool {
	if s.ours() {
		return true
	}
	if s.backup.Status == nil {
		return false
	}
	progressing := meta.FindStatusCondition(s.backup.Status.Conditions, string(backupv1.ConditionProgressing))
	return progressing != nil && progressing.Reason == backupv1.ReasonInitiated
}

// volumeStatus is what vmi's status says of the volume called name; nil for nothing.
func volumeStatus(vmi *virtv1.VirtualMachineInstance, name string) *virtv1.VolumeStatus {
	all := vmi.Status.VolumeStatus
	if i := slices.IndexFunc(all, func(status virtv1.VolumeStatus) bool { return status.Name == name }); i >= 0 {
		return &all[i]
	}
	return nil
}
