package virtualmachine

import (
	"context"
	"fmt"
	"reflect"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	virtv1 "kubevirt.io/api/core/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	"github.com/slipway-vm/slipway/controllers/featuregate"
	"github.com/slipway-vm/slipway/internal/names"
)

// What is written to the disks of a VM is recorded by QEMU while it runs, from the first backup on that asks for
// it. So a VM that the KubeVirt object chooses needs no restart for it, and what is recorded ends with each run.

// tracking is which VMs the KubeVirt object chooses.
type tracking struct {
	// on says that the feature gate is.
	on bool
	// machines and namespaces choose VMs by their labels, and by those of their namespaces; nil chooses none.
	machines, namespaces *metav1.LabelSelector
}

func trackingOf(kv *virtv1.KubeVirt) tracking {
	t := tracking{on: featuregate.On(kv, featuregate.IncrementalBackup)}
	if selectors := kv.Spec.Configuration.ChangedBlockTrackingLabelSelectors; selectors != nil {
		t.machines, t.namespaces = selectors.VirtualMachineLabelSelector, selectors.NamespaceLabelSelector
	}
	return t
}

// trackChanges finds out whether the VM is chosen, and says so of its instance once that runs.
func (r *Reconciler) trackChanges(ctx context.Context, s *scope) error {
	config, err := r.readSettings(ctx)
	if err != nil {
		return err
	}
	chosen, err := r.chosen(ctx, s.vm, config.tracking)
	if err != nil {
		return err
	}
	s.tracking = trackingState(s.tracking, config.tracking.on, chosen, s.vmi != nil && s.vmi.IsRunning())
	if s.vmi == nil || !s.vmi.IsRunning() || s.vmi.DeletionTimestamp != nil {
		return nil
	}
	return r.setTracking(ctx, s, instanceTracking(s.vmi.Status.ChangedBlockTracking, config.tracking.on && chosen))
}

// chosen says whether the selectors choose vm.
func (r *Reconciler) chosen(ctx context.Context, vm *virtv1.VirtualMachine, config tracking) (bool, error) {
	if matches(config.machines, vm.Labels) {
		return true, nil
	}
	if config.namespaces == nil {
		return false, nil
	}
	namespace := &corev1.Namespace{}
	if err := r.Get(ctx, client.ObjectKey{Name: vm.Namespace}, namespace); err != nil {
		return false, fmt.Errorf("reading namespace %s: %w", vm.Namespace, err)
	}
	return matches(config.namespaces, namespace.Labels), nil
}

// matches says whether selector, which may be nil, chooses what has these labels. One that cannot be read is refused in
// the KubeVirt object; here it chooses nothing.
func matches(selector *metav1.LabelSelector, has map[string]string) bool {
	if selector == nil {
		return false
	}
	parsed, err := metav1.LabelSelectorAsSelector(selector)
	return err == nil && parsed.Matches(labels.Set(has))
}

// trackingState is what a VM says of itself, which was before, where the gate is on or not. A VM that never was
// chosen says nothing.
func trackingState(before virtv1.ChangedBlockTrackingState, on, chosen, running bool) virtv1.ChangedBlockTrackingState {
	switch {
	case chosen && !on:
		return virtv1.ChangedBlockTrackingFGDisabled
	case chosen && running:
		return virtv1.ChangedBlockTrackingEnabled
	case chosen:
		return virtv1.ChangedBlockTrackingInitializing
	case before == virtv1.ChangedBlockTrackingUndefined, before == virtv1.ChangedBlockTrackingFGDisabled:
		return virtv1.ChangedBlockTrackingUndefined
	}
	return virtv1.ChangedBlockTrackingDisabled
}

// instanceTracking is what a running instance that says before is to say.
func instanceTracking(before *virtv1.ChangedBlockTrackingStatus, tracked bool) virtv1.ChangedBlockTrackingState {
	switch {
	case tracked:
		return virtv1.ChangedBlockTrackingEnabled
	case before == nil:
		return virtv1.ChangedBlockTrackingUndefined
	}
	return virtv1.ChangedBlockTrackingDisabled
}

// setTracking says state of the instance. What is said of backups there is virt-handler's.
func (r *Reconciler) setTracking(ctx context.Context, s *scope, state virtv1.ChangedBlockTrackingState) error {
	changed := s.vmi.DeepCopy()
	if changed.Status.ChangedBlockTracking == nil {
		if state == virtv1.ChangedBlockTrackingUndefined {
			return nil
		}
		changed.Status.ChangedBlockTracking = &virtv1.ChangedBlockTrackingStatus{}
	}
	if changed.Status.ChangedBlockTracking.State == state {
		return nil
	}
	changed.Status.ChangedBlockTracking.State = state
	if err := r.Patch(ctx, changed, client.MergeFrom(s.vmi), client.FieldOwner(names.ManagerController)); err != nil {
		return changeError(s, err)
	}
	s.vmi = changed
	return nil
}

// trackingStatus is what the VM's status says, with what its instance says of the last backup.
func trackingStatus(s *scope) *virtv1.ChangedBlockTrackingStatus {
	if s.tracking == virtv1.ChangedBlockTrackingUndefined {
		return nil
	}
	status := &virtv1.ChangedBlockTrackingStatus{State: s.tracking}
	if s.vmi != nil && s.vmi.Status.ChangedBlockTracking != nil {
		status.BackupStatus = s.vmi.Status.ChangedBlockTracking.BackupStatus
	}
	return status
}

// trackingChanged holds of KubeVirt objects that choose other VMs than before.
func trackingChanged() predicate.Predicate {
	return predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		before, known := e.ObjectOld.(*virtv1.KubeVirt)
		after, known2 := e.ObjectNew.(*virtv1.KubeVirt)
		return !known || !known2 || !reflect.DeepEqual(trackingOf(before), trackingOf(after))
	}}
}

// everyMachine requests all VMs; of a namespace, those in it.
func (r *Reconciler) everyMachine(ctx context.Context, object client.Object) []ctrl.Request {
	namespace := ""
	if _, one := object.(*corev1.Namespace); one {
		namespace = object.GetName()
	}
	return r.who(ctx, namespace, func(*virtv1.VirtualMachine) bool { return true })
}
