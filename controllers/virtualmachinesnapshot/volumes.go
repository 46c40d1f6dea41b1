package virtualmachinesnapshot

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"time"

	csiv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	snapshotv1 "kubevirt.io/api/snapshot/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-vm/slipway/internal/names"
	"github.com/slipway-vm/slipway/internal/steps"
)

// frozen is what a VMI's status says of a guest whose file systems stand still.
const frozen = "frozen"

// readVolumes reads the VolumeSnapshots of the content.
func (r *Reconciler) readVolumes(ctx context.Context, s *scope) error {
	s.volumes = map[string]*csiv1.VolumeSnapshot{}
	if s.content == nil {
		return nil
	}
	for _, backup := range s.content.Spec.VolumeBackups {
		snapshot := &csiv1.VolumeSnapshot{}
		found, err := r.get(ctx, client.ObjectKey{Namespace: s.content.Namespace, Name: ptr.Deref(backup.VolumeSnapshotName, "")}, snapshot)
		if err != nil {
			return err
		}
		if found {
			s.volumes[snapshot.Name] = snapshot
		}
	}
	return nil
}

// takeVolumes asks for the VolumeSnapshots that there are not yet, of a guest that stands still if it can.
func (r *Reconciler) takeVolumes(ctx context.Context, s *scope) error {
	for i := range s.content.Spec.VolumeBackups {
		backup := &s.content.Spec.VolumeBackups[i]
		if s.volumes[*backup.VolumeSnapshotName] != nil {
			continue
		}
		if err := r.holdStill(ctx, s); err != nil {
			return err
		}
		class, err := r.classOf(ctx, backup.PersistentVolumeClaim.Spec.StorageClassName)
		if err != nil {
			return err
		}
		if class == "" {
			return fail("there is no VolumeSnapshotClass for StorageClass %s any more", ptr.Deref(backup.PersistentVolumeClaim.Spec.StorageClassName, ""))
		}
		snapshot := newVolumeSnapshot(s.content, backup, class)
		err = r.Create(ctx, snapshot, client.FieldOwner(names.ManagerController))
		switch {
		case apierrors.IsAlreadyExists(err):
		case apierrors.IsForbidden(err), apierrors.IsInvalid(err):
			return fail("creating VolumeSnapshot %s: %v", snapshot.Name, err)
		case err != nil:
			return fmt.Errorf("creating VolumeSnapshot %s: %w", client.ObjectKeyFromObject(snapshot), err)
		default:
			r.normal(s, reasonVolumeSnapshot, "Successfully created VolumeSnapshot %s", snapshot.Name)
		}
		s.volumes[snapshot.Name] = snapshot
	}
	return nil
}

// newVolumeSnapshot makes the VolumeSnapshot of a disk, which goes with content.
func newVolumeSnapshot(content *snapshotv1.VirtualMachineSnapshotContent, backup *snapshotv1.VolumeBackup, class string) *csiv1.VolumeSnapshot {
	owner := metav1.NewControllerRef(content, snapshotv1.SchemeGroupVersion.WithKind(kindContent))
	return &csiv1.VolumeSnapshot{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: content.Namespace, Name: *backup.VolumeSnapshotName, OwnerReferences: []metav1.OwnerReference{*owner},
			Labels: map[string]string{
				labelSourceName:      content.Spec.Source.VirtualMachine.Name,
				labelSourceNamespace: content.Spec.Source.VirtualMachine.Namespace,
			},
		},
		Spec: csiv1.VolumeSnapshotSpec{
			Source:                  csiv1.VolumeSnapshotSource{PersistentVolumeClaimName: &backup.PersistentVolumeClaim.Name},
			VolumeSnapshotClassName: &class,
		},
	}
}

// holdStill makes the file systems of a running guest stand still, where an agent can do that. What the guest's node
// says of them survives this controller.
func (r *Reconciler) holdStill(ctx context.Context, s *scope) error {
	if !s.quiesced() || s.vmi.Status.FSFreezeStatus == frozen {
		return nil
	}
	if err := r.guests.Freeze(ctx, client.ObjectKeyFromObject(s.vmi), s.standstill()); err != nil {
		return fail("%v", err)
	}
	s.vmi.Status.FSFreezeStatus = frozen
	return nil
}

// standstill is how long the guest's file systems stand still at the most.
func (s *scope) standstill() time.Duration { return cmp.Or(s.deadline(), longestFreeze) }

// wentOn says whether the guest went on before the last of its disks was taken.
func (s *scope) wentOn() bool {
	var first, last time.Time
	for _, snapshot := range s.volumes {
		if asked := snapshot.CreationTimestamp.Time; first.IsZero() || asked.Before(first) {
			first = asked
		}
		if taken := snapshot.Status.CreationTime; taken.After(last) {
			last = taken.Time
		}
	}
	return last.Sub(first) >= s.standstill()
}

// settle lets the guest go on when all disks are taken; until then the pass ends here.
func (r *Reconciler) settle(ctx context.Context, s *scope) error {
	for _, backup := range s.content.Spec.VolumeBackups {
		snapshot := s.volumes[*backup.VolumeSnapshotName]
		if snapshot.Status == nil || snapshot.Status.CreationTime == nil {
			return first(r.writeContentStatus(ctx, s), steps.ErrDone) // its change is watched
		}
	}
	if s.quiesced() {
		err := r.guests.Unfreeze(ctx, client.ObjectKeyFromObject(s.vmi))
		switch {
		case err == nil && s.wentOn(), err != nil && strings.Contains(err.Error(), vssLimit):
			s.cut = true
			if err := r.announce(ctx, s); err != nil { // before the content counts as made
				return err
			}
		case err != nil:
			return fail("%v", err)
		}
	}
	s.content = s.content.DeepCopy()
	s.content.Status = new(contentStatus(s))
	s.content.Status.CreationTime = new(metav1.NewTime(s.now).Rfc3339Copy())
	return nil
}

// letGo lets the guest of a snapshot go on that is not to be had any more. A guest that cannot be asked does so by itself in time.
func (r *Reconciler) letGo(ctx context.Context, s *scope) error {
	if made(s.content) || !s.locked() || !s.quiesced() || s.vmi.Status.FSFreezeStatus != frozen {
		return nil
	}
	if err := r.guests.Unfreeze(ctx, client.ObjectKeyFromObject(s.vmi)); err != nil {
		r.warning(s, reasonError, "The file systems of the guest go on only when their time is over: %v", err)
	}
	return nil
}

// noteProblem writes into the content's status what stands in the way.
func (r *Reconciler) noteProblem(ctx context.Context, s *scope, found *problem) error {
	if told := status(s.snapshot).Error; told == nil || ptr.Deref(told.Message, "") != found.message {
		r.warning(s, reasonError, "%s", found.message)
	}
	if s.content == nil || made(s.content) {
		return nil
	}
	return r.writeContentStatus(ctx, s)
}

func (r *Reconciler) normal(s *scope, reason, format string, args ...any) {
	r.events.Eventf(s.snapshot, nil, corev1.EventTypeNormal, reason, "Reconcile", format, args...)
}

func (r *Reconciler) warning(s *scope, reason, format string, args ...any) {
	r.events.Eventf(s.snapshot, nil, corev1.EventTypeWarning, reason, "Reconcile", format, args...)
}
