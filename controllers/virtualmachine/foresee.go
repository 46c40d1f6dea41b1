package virtualmachine

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	virtv1 "kubevirt.io/api/core/v1"

	"github.com/slipway-vm/slipway/controllers/instancetype"
	"github.com/slipway-vm/slipway/controllers/virtualmachineinstance"
)

// A VM without an instance says itself what the instance would: what is done about its disks, for these are filled
// whether it runs or not, and what would keep it from starting.

const (
	// progressStep is how long the words of a wait stay as they are: progress costs a write in 10 s at most, however many disks are filled.
	progressStep = 10 * time.Second
	// lookAgain is when a VM that could not be started is looked at again: instance types and preferences are not watched.
	lookAgain = time.Minute
)

// Conditions that an instance has in these words, too.
const (
	conditionProvisioning = virtv1.VirtualMachineConditionType(virtv1.VirtualMachineInstanceProvisioning)
	conditionSynchronized = virtv1.VirtualMachineConditionType(virtv1.VirtualMachineInstanceSynchronized)
)

// foresee finds out what the VM lacks, as long as there is no instance that says so.
func (r *Reconciler) foresee(ctx context.Context, s *scope) error {
	template := s.vm.Spec.Template
	if s.vmi != nil || template == nil || s.strategyError != nil || s.vm.Status.RestoreInProgress != nil {
		return nil
	}
	found, err := virtualmachineinstance.Foresee(ctx, r.Client, s.vm.Namespace, template.Spec.Volumes, s.dataVolumes)
	if err != nil {
		return fmt.Errorf("looking for what VirtualMachine %s/%s lacks: %w", s.vm.Namespace, s.vm.Name, err)
	}
	s.foreseen = found
	if s.wanted() {
		return nil // the start says the rest
	}
	if s.unstartable, err = r.tryParts(ctx, s.vm); s.unstartable != nil {
		s.requeueAfter(lookAgain)
	}
	return err
}

// tryParts says why no instance could be made of vm. What it was started with before is recorded, and need not be there any more.
func (r *Reconciler) tryParts(ctx context.Context, vm *virtv1.VirtualMachine) (problem, err error) {
	if !unrecorded(vm.Spec.Instancetype != nil, vm.Status.InstancetypeRef) && !unrecorded(vm.Spec.Preference != nil, vm.Status.PreferenceRef) {
		return nil, nil
	}
	p, err := r.parts(ctx, vm)
	switch {
	case err == nil:
		_, problem = instance(p)
		return problem, nil
	case errors.Is(err, instancetype.ErrNotYet):
		return nil, nil
	case apierrors.IsNotFound(err), errors.Is(err, instancetype.ErrNothingInferred):
		return err, nil
	}
	return nil, err
}

func unrecorded(named bool, known *virtv1.InstancetypeStatusRef) bool {
	return named && instancetype.RevisionOf(known) == ""
}

// foresees says whether the VM lacks something for one of the reasons.
func foresees(s *scope, reasons ...string) bool {
	return s.vmi == nil && slices.ContainsFunc(s.foreseen, func(l virtualmachineinstance.Lack) bool { return slices.Contains(reasons, l.Reason) })
}

// foreseenConditions are what an instance would say of what the VM lacks: Synchronized is false for what somebody must
// mend, Provisioning true for what only takes time, and false for what begins with the start.
func foreseenConditions(s *scope) []virtv1.VirtualMachineCondition {
	var helps, times, starts []virtualmachineinstance.Lack
	for _, l := range s.foreseen {
		switch {
		case l.Help:
			helps = append(helps, l)
		case l.Start:
			starts = append(starts, l)
		default:
			times = append(times, l)
		}
	}
	var all []virtv1.VirtualMachineCondition
	add := func(kind virtv1.VirtualMachineConditionType, status corev1.ConditionStatus, found []virtualmachineinstance.Lack, more string) {
		var messages []string
		for _, l := range found {
			messages = append(messages, l.Message)
		}
		c := virtv1.VirtualMachineCondition{Type: kind, Status: status, Reason: found[0].Reason, Message: strings.Join(messages, "; ") + more}
		all = append(all, paced(c, s))
	}
	if len(helps) > 0 {
		add(conditionSynchronized, corev1.ConditionFalse, helps, "")
	}
	switch {
	case len(times) > 0:
		add(conditionProvisioning, corev1.ConditionTrue, times, "")
	case len(starts) > 0 && !s.wanted():
		add(conditionProvisioning, corev1.ConditionFalse, starts, ": it is filled when the VM is started")
	}
	return all
}

// paced keeps the words of a condition that says the same otherwise for progressStep, and asks for a pass after that. When they were
// written is the time of its last probe.
func paced(c virtv1.VirtualMachineCondition, s *scope) virtv1.VirtualMachineCondition {
	c.LastProbeTime.Time = s.now.Truncate(time.Second)
	for _, old := range s.vm.Status.Conditions {
		if old.Type != c.Type || old.Status != c.Status || old.Reason != c.Reason || old.LastProbeTime.IsZero() {
			continue
		}
		left := progressStep - s.now.Sub(old.LastProbeTime.Time)
		switch {
		case old.Message == c.Message:
			c.LastProbeTime = old.LastProbeTime
		case left > 0:
			c.Message, c.LastProbeTime = old.Message, old.LastProbeTime
			s.requeueAfter(left)
		}
	}
	return c
}
