package pool

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
	virtv1 "kubevirt.io/api/core/v1"
	poolv1 "kubevirt.io/api/pool/v1beta1"

	"github.com/slipway-vm/slipway/controllers/virtualmachine"
)

// What makes a VM one that is replaced, unless the pool says otherwise: so many starts that failed in a row, or so long without one.
const (
	defaultFailedStarts = 3
	defaultFailingFor   = 5 * time.Minute
)

// failing are the words of VMs that do not start, and will not by waiting alone.
var failing = []virtv1.VirtualMachinePrintableStatus{
	virtv1.VirtualMachineStatusCrashLoopBackOff, virtv1.VirtualMachineStatusUnschedulable, virtv1.VirtualMachineStatusDataVolumeError,
	virtv1.VirtualMachineStatusPvcNotFound, virtv1.VirtualMachineStatusErrImagePull, virtv1.VirtualMachineStatusImagePullBackOff,
}

// ailment is a VM that is replaced, and why.
type ailment struct {
	vm  *virtv1.VirtualMachine
	why string
}

// planHealing plans which of the machines are replaced because they do not start, and when another one is due.
func (p *plan) planHealing(pool *poolv1.VirtualMachinePool, machines []*virtv1.VirtualMachine, guests map[string]*virtv1.VirtualMachineInstance, now time.Time) {
	given := pool.Spec.Autohealing
	if given == nil {
		return
	}
	starts, after := int(ptr.Deref(given.StartUpFailureThreshold, defaultFailedStarts)), defaultFailingFor
	if given.MinFailingToStartDuration != nil {
		after = given.MinFailingToStartDuration.Duration
	}
	for _, vm := range machines {
		if slices.Contains(p.remove, vm) {
			continue
		}
		if failure := vm.Status.StartFailure; failure != nil && failure.ConsecutiveFailCount >= max(starts, 1) {
			p.heal = append(p.heal, ailment{vm: vm, why: fmt.Sprintf("%d starts failed", failure.ConsecutiveFailCount)})
			continue
		}
		since, is := failingSince(vm, guests[vm.Name])
		switch left := after - now.Sub(since); {
		case !is:
		case left <= 0:
			p.heal = append(p.heal, ailment{vm: vm, why: fmt.Sprintf("it is %s since %s", vm.Status.PrintableStatus, since.UTC().Format(time.RFC3339))})
		case p.again == 0 || left < p.again:
			p.again = left
		}
	}
}

// failingSince is since when vm, whose instance is vmi, does not start; false for one that does, or is not to. A VM that was halted
// for long and then started has failed since the start.
func failingSince(vm *virtv1.VirtualMachine, vmi *virtv1.VirtualMachineInstance) (time.Time, bool) {
	if !slices.Contains(failing, vm.Status.PrintableStatus) {
		return time.Time{}, false
	}
	if vm.Status.PrintableStatus == virtv1.VirtualMachineStatusCrashLoopBackOff {
		return virtualmachine.FailingSince(vm.Status.StartFailure)
	}
	if vmi == nil {
		return time.Time{}, false
	}
	since := vmi.CreationTimestamp.Time
	for _, c := range vm.Status.Conditions {
		if c.Type != virtv1.VirtualMachineReady {
			continue
		}
		if c.Status == corev1.ConditionTrue {
			return time.Time{}, false
		}
		if c.LastTransitionTime.After(since) {
			since = c.LastTransitionTime.Time
		}
	}
	return since, true
}

// healed deletes VMs that do not start. The next pass makes them anew when they are gone: with their disks, where the pool keeps those.
func (r *Reconciler) healed(ctx context.Context, s *scope) error {
	var errs []error
	for _, one := range s.plan.heal {
		if preserves(s.pool) || holds(s.pool) {
			if err := r.keepDisks(ctx, one.vm); err != nil {
				errs = append(errs, err)
				continue
			}
		}
		r.normal(s.pool, reasonHealing, "Replacing VM %s/%s: %s", one.vm.Namespace, one.vm.Name, one.why)
		errs = append(errs, r.delete(ctx, s, one.vm))
	}
	if err := errors.Join(errs...); err != nil {
		return s.fail(reasonHealingFailed, err)
	}
	return nil
}
