package virtualmachineinstance

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	virtv1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/slipway-vm/slipway/controllers/virtualmachineinstance/pod"
	"github.com/slipway-vm/slipway/internal/names"
	"github.com/slipway-vm/slipway/internal/steps"
)

// addFinalizer adds the finalizer that admission adds to every VMI, in case it was
// made while no admission was installed.
func (r *Reconciler) addFinalizer(ctx context.Context, s *scope) error {
	if hasFinalizer(s.vmi) {
		return nil
	}
	changed := s.vmi.DeepCopy()
	controllerutil.AddFinalizer(changed, virtv1.VirtualMachineInstanceFinalizer)
	if err := r.patch(ctx, changed, s.vmi); err != nil {
		return fmt.Errorf("adding the finalizer to %s/%s: %w", s.vmi.Namespace, s.vmi.Name, err)
	}
	s.vmi.ResourceVersion = changed.ResourceVersion
	return nil
}

func hasFinalizer(vmi *virtv1.VirtualMachineInstance) bool {
	return controllerutil.ContainsFinalizer(vmi, virtv1.VirtualMachineInstanceFinalizer) ||
		controllerutil.ContainsFinalizer(vmi, virtv1.DeprecatedVirtualMachineInstanceFinalizer)
}

// patch writes the difference of finalizers: a list that no single manager owns, so
// that apply cannot take out what another put in.
func (r *Reconciler) patch(ctx context.Context, changed, from *virtv1.VirtualMachineInstance) error {
	patch := client.MergeFromWithOptions(from, client.MergeFromWithOptimisticLock{})
	if err := r.Patch(ctx, changed, patch, client.FieldOwner(names.ManagerController)); err != nil {
		return fmt.Errorf("patching VirtualMachineInstance %s/%s: %w", from.Namespace, from.Name, err)
	}
	return nil
}

// finalize ends a deleted VMI: its pods go, the launcher's with the time that the guest
// has to power off, and the finalizer as soon as nothing of the launcher runs any more. That
// is before its pod's object goes, which the kubelet keeps until it has cleared the volumes
// away. The kubelet's signal reaches the launcher without virt-handler, so a node whose
// handler is away lets its VMs go too.
func (r *Reconciler) finalize(ctx context.Context, s *scope) error {
	if !hasFinalizer(s.vmi) {
		return nil
	}
	if s.provisioner != nil {
		if err := r.deletePod(ctx, s, s.provisioner, 0); err != nil {
			return err
		}
	}
	if s.pod != nil {
		if err := r.deletePod(ctx, s, s.pod, pod.DeletionGrace(s.vmi)); err != nil || !stopped(s.pod) {
			return err
		}
	}
	if runs, err := r.deleteUnseen(ctx, s); err != nil || runs {
		return err
	}
	if err := r.releaseVolumes(ctx, s, r.live); err != nil {
		return err
	}
	changed := s.vmi.DeepCopy()
	controllerutil.RemoveFinalizer(changed, virtv1.VirtualMachineInstanceFinalizer)
	controllerutil.RemoveFinalizer(changed, virtv1.DeprecatedVirtualMachineInstanceFinalizer)
	if err := r.patch(ctx, changed, s.vmi); err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("removing the finalizer from %s/%s: %w", s.vmi.Namespace, s.vmi.Name, err)
	}
	return nil
}

// stopped says whether the kubelet has said that nothing runs in p any more. A final phase alone
// does not: that of a pod whose node is lost comes from elsewhere.
func stopped(p *corev1.Pod) bool {
	running := func(c corev1.ContainerStatus) bool { return c.State.Running != nil }
	return endOf(p) != nil && !slices.ContainsFunc(p.Status.InitContainerStatuses, running) && !slices.ContainsFunc(p.Status.ContainerStatuses, running)
}

// deleteUnseen deletes the pods that the API server has, which the cache may not show, and says
// whether something still runs in a launcher among them.
func (r *Reconciler) deleteUnseen(ctx context.Context, s *scope) (runs bool, err error) {
	provisioner, err := r.livePod(ctx, s.vmi, pod.KindProvisioner)
	if err != nil {
		return false, err
	}
	if provisioner != nil {
		if err := r.deletePod(ctx, s, provisioner, 0); err != nil {
			return false, err
		}
	}
	launchers, err := r.livePods(ctx, s.vmi, pod.KindLauncher)
	if err != nil {
		return false, err
	}
	for _, launcher := range launchers {
		if err := r.deletePod(ctx, s, launcher, pod.DeletionGrace(s.vmi)); err != nil {
			return false, err
		}
		runs = runs || !stopped(launcher)
	}
	return runs, nil
}

// clearEnded removes the pods of a VMI that ended, and keeps the VMI as its record.
func (r *Reconciler) clearEnded(ctx context.Context, s *scope) error {
	if !s.vmi.IsFinal() {
		return nil
	}
	s.wanted.Outdated = false // it has no launcher any more
	if s.provisioner != nil {
		if err := r.deletePod(ctx, s, s.provisioner, 0); err != nil {
			return err
		}
	}
	if s.pod != nil {
		if err := r.deletePod(ctx, s, s.pod, pod.DeletionGrace(s.vmi)); err != nil {
			return err
		}
		return steps.ErrDone
	}
	if err := r.releaseVolumes(ctx, s, r); err != nil {
		return err
	}
	return steps.ErrDone
}

// deletePod deletes p once, with grace seconds. A pod of a node that is gone has nobody
// to end it; it is deleted at once by the node's own controller.
func (r *Reconciler) deletePod(ctx context.Context, s *scope, p *corev1.Pod, grace int64) error {
	if p.DeletionTimestamp != nil {
		return nil
	}
	err := r.Delete(ctx, p, client.GracePeriodSeconds(grace), client.Preconditions{UID: &p.UID})
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		r.warning(s.vmi, p, reasonDeleteFailed, "Error deleting pod: %v", err)
		return fmt.Errorf("deleting pod %s/%s: %w", p.Namespace, p.Name, err)
	}
	r.normal(s.vmi, p, reasonDelete, "Deleted virtual machine pod %s", p.Name)
	return nil
}
