package virtualmachinebackup

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/tools/events"
	backupv1 "kubevirt.io/api/backup/v1alpha1"
	virtv1 "kubevirt.io/api/core/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/slipway-vm/slipway/internal/steps"
)

// Finalizer keeps a backup until nothing of it is on its VMI any more, in the field's words.
const Finalizer = "backup.kubevirt.io/vmbackup-protection"

// Reconciler makes backups.
type Reconciler struct {
	client.Client // its cache has the backups and trackers

	live   client.Reader // past the caches: all that is decided by
	events events.EventRecorder
	now    func() time.Time
}

// SetupWithManager adds the controller to mgr.
func SetupWithManager(mgr ctrl.Manager) error {
	r := &Reconciler{Client: mgr.GetClient(), live: mgr.GetAPIReader(), events: mgr.GetEventRecorder("backup-controller"), now: time.Now}
	err := ctrl.NewControllerManagedBy(mgr).Named("virtualmachinebackup").
		For(&backupv1.VirtualMachineBackup{}).
		Watches(&backupv1.VirtualMachineBackupTracker{}, handler.EnqueueRequestsFromMapFunc(r.ofTracker)).
		Watches(&virtv1.VirtualMachine{}, handler.EnqueueRequestsFromMapFunc(r.ofMachine)).
		Watches(&virtv1.VirtualMachineInstance{}, handler.EnqueueRequestsFromMapFunc(r.ofMachine)).
		Watches(&corev1.PersistentVolumeClaim{}, handler.EnqueueRequestsFromMapFunc(r.ofClaim)).
		Complete(r)
	if err != nil {
		return fmt.Errorf("setting up the VirtualMachineBackup controller: %w", err)
	}
	return nil
}

// ofTracker requests the backups by a tracker.
func (r *Reconciler) ofTracker(ctx context.Context, tracker client.Object) []reconcile.Request {
	return r.those(ctx, tracker.GetNamespace(), func(b *backupv1.VirtualMachineBackup) bool {
		return byTracker(b) && b.Spec.Source.Name == tracker.GetName()
	})
}

// ofMachine requests the backups of a VM, or of the instance of its name.
func (r *Reconciler) ofMachine(ctx context.Context, machine client.Object) []reconcile.Request {
	var trackers map[string]bool
	return r.those(ctx, machine.GetNamespace(), func(b *backupv1.VirtualMachineBackup) bool {
		if !byTracker(b) {
			return b.Spec.Source.Name == machine.GetName()
		}
		if trackers == nil {
			trackers = r.trackersOf(ctx, machine)
		}
		return trackers[b.Spec.Source.Name]
	})
}

func (r *Reconciler) trackersOf(ctx context.Context, machine client.Object) map[string]bool {
	all := &backupv1.VirtualMachineBackupTrackerList{}
	if err := r.List(ctx, all, client.InNamespace(machine.GetNamespace())); err != nil {
		log.FromContext(ctx).Error(err, "Listing VirtualMachineBackupTrackers failed")
	}
	found := map[string]bool{}
	for i := range all.Items {
		if all.Items[i].Spec.Source.Name == machine.GetName() {
			found[all.Items[i].Name] = true
		}
	}
	return found
}

// ofClaim requests the backups that are written to a claim.
func (r *Reconciler) ofClaim(ctx context.Context, claim client.Object) []reconcile.Request {
	return r.those(ctx, claim.GetNamespace(), func(b *backupv1.VirtualMachineBackup) bool { return claimOf(b) == claim.GetName() })
}

// those are the backups of a namespace that chosen holds of, and that are not over.
func (r *Reconciler) those(ctx context.Context, namespace string, chosen func(*backupv1.VirtualMachineBackup) bool) []reconcile.Request {
	all := &backupv1.VirtualMachineBackupList{}
	if err := r.List(ctx, all, client.InNamespace(namespace)); err != nil {
		log.FromContext(ctx).Error(err, "Listing VirtualMachineBackups failed")
		return nil
	}
	var requests []reconcile.Request
	for i := range all.Items {
		if b := &all.Items[i]; (!over(b) || held(b)) && chosen(b) {
			requests = append(requests, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(b)})
		}
	}
	return requests
}

// todo are the steps of a pass. Whatever can be known before the guest's disks are copied is asked before that; a tracker knows its
// checkpoint before the backup is said to be whole; what is on the VMI goes last, and at once for a backup that is deleted.
func (r *Reconciler) todo(s *scope) []func(context.Context, *scope) error {
	if over(s.backup) || s.backup.DeletionTimestamp != nil {
		return []func(context.Context, *scope) error{r.release, r.letGo}
	}
	return []func(context.Context, *scope) error{
		r.checkSource, r.checkInstance, r.checkClaim, r.waitForTurn, r.hold, r.request, r.follow, r.keepCheckpoint,
	}
}

// Reconcile brings one backup forward.
func (r *Reconciler) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	s, err := r.read(ctx, request.NamespacedName)
	if err != nil || s == nil {
		return ctrl.Result{}, err
	}
	err = steps.Run(ctx, s, r.todo(s))
	if found, ok := errors.AsType[*obstacle](err); ok {
		s.obstacle, err = found, nil
	}
	if s.gone {
		return ctrl.Result{}, err
	}
	err = errors.Join(err, r.writeStatus(ctx, s))
	if apierrors.IsConflict(err) {
		log.FromContext(ctx).V(1).Info("Waiting for the newer object", "reason", err.Error())
		return ctrl.Result{Requeue: true}, nil //nolint:staticcheck // the event that brings the newer object may have passed already
	}
	return ctrl.Result{}, err
}
