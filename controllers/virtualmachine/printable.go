package virtualmachine

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	virtv1 "kubevirt.io/api/core/v1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"

	"github.com/slipway-vm/slipway/controllers/virtualmachineinstance"
	"github.com/slipway-vm/slipway/internal/names"
)

// printable is the one word for how the VM is: the first of the list that holds. What
// the user is waiting for, or must mend, comes before what the VM does meanwhile. Of several
// things to mend KubeVirt's order tells the first.
func printable(s *scope) virtv1.VirtualMachinePrintableStatus {
	for _, candidate := range []struct {
		word  virtv1.VirtualMachinePrintableStatus
		holds func(*scope) bool
	}{
		{virtv1.VirtualMachineStatusTerminating, func(s *scope) bool { return s.vm.DeletionTimestamp != nil }},
		{virtv1.VirtualMachineStatusStopping, stopping},
		{virtv1.VirtualMachineStatusUnknown, func(s *scope) bool { return inPhase(s, virtv1.Unknown) }},
		{virtv1.VirtualMachineStatusUnknown, func(s *scope) bool { return inPhase(s, virtv1.Running) && unresponsive(s.vmi) }},
		{virtv1.VirtualMachineStatusPaused, func(s *scope) bool { return inPhase(s, virtv1.Running) && paused(s.vmi) }},
		{virtv1.VirtualMachineStatusRunning, func(s *scope) bool { return inPhase(s, virtv1.Running) }},
		{virtv1.VirtualMachineStatusDataVolumeError, migrationFailed},
		{virtv1.VirtualMachineStatusPvcNotFound, notSynchronized(virtualmachineinstance.ReasonPVCNotFound)},
		{virtv1.VirtualMachineStatusDataVolumeError, dataVolumeFailed},
		{virtv1.VirtualMachineStatusUnschedulable, says("PodScheduled", corev1.ConditionFalse, virtualmachineinstance.ReasonUnschedulable)},
		{virtv1.VirtualMachineStatusErrImagePull, notSynchronized(virtualmachineinstance.ReasonErrImagePull, "ErrImageNeverPull", "InvalidImageName", "RegistryUnavailable")},
		{virtv1.VirtualMachineStatusImagePullBackOff, notSynchronized(virtualmachineinstance.ReasonImagePullBackOff)},
		{virtv1.VirtualMachineStatusProvisioning, provisioning},
		{virtv1.VirtualMachineStatusProvisioning, migrating},
		{virtv1.VirtualMachineStatusWaitingForVolumeBinding, says(virtv1.VirtualMachineInstanceProvisioning, corev1.ConditionTrue, virtualmachineinstance.ReasonBinding, virtualmachineinstance.ReasonUnbound)},
		{virtv1.VirtualMachineStatusWaitingForVolumeBinding, notSynchronized(virtualmachineinstance.ReasonUnbound)},
		{virtv1.VirtualMachineStatusStarting, starting},
		{virtv1.VirtualMachineStatusCrashLoopBackOff, crashLooping},
	} {
		if candidate.holds(s) {
			return candidate.word
		}
	}
	return virtv1.VirtualMachineStatusStopped
}

func inPhase(s *scope, phase virtv1.VirtualMachineInstancePhase) bool {
	return s.vmi != nil && s.vmi.Status.Phase == phase
}

func stopping(s *scope) bool {
	if s.vmi == nil || s.vmi.IsFinal() {
		return false
	}
	return s.vmi.DeletionTimestamp != nil || s.stopRequested() || s.strategyError == nil && !s.wanted()
}

func paused(vmi *virtv1.VirtualMachineInstance) bool {
	c := vmiCondition(vmi, virtv1.VirtualMachineInstancePaused)
	return c != nil && c.Status == corev1.ConditionTrue
}

// unresponsive says whether a part of vmi does not answer, so that nobody knows how its guest is.
func unresponsive(vmi *virtv1.VirtualMachineInstance) bool {
	c := vmiCondition(vmi, virtv1.VirtualMachineInstanceReady)
	return c != nil && slices.Contains([]string{
		names.ReasonQEMUUnresponsive, names.ReasonLibvirtUnresponsive, names.ReasonLauncherUnresponsive,
	}, c.Reason)
}

// says holds when a VMI that has not ended has the condition with one of the reasons.
func says(kind virtv1.VirtualMachineInstanceConditionType, status corev1.ConditionStatus, reasons ...string) func(*scope) bool {
	return func(s *scope) bool {
		if s.vmi == nil || s.vmi.IsFinal() {
			return false
		}
		c := vmiCondition(s.vmi, kind)
		return c != nil && c.Status == status && slices.Contains(reasons, c.Reason)
	}
}

func notSynchronized(reasons ...string) func(*scope) bool {
	return says(virtv1.VirtualMachineInstanceSynchronized, corev1.ConditionFalse, reasons...)
}

func dataVolumeFailed(s *scope) bool {
	for _, dv := range s.dataVolumes {
		if dv.Status.Phase == cdiv1.Failed {
			return true
		}
	}
	return foresees(s, virtualmachineinstance.ReasonImportFailed) || notSynchronized(virtualmachineinstance.ReasonImportFailed)(s)
}

// provisioning holds while a disk of the VM is being filled, whether it is to run or not.
func provisioning(s *scope) bool {
	for _, dv := range s.dataVolumes {
		switch dv.Status.Phase {
		case cdiv1.Succeeded, cdiv1.Failed, cdiv1.WaitForFirstConsumer, cdiv1.PendingPopulation, cdiv1.Unknown, cdiv1.Paused:
		default:
			return true
		}
	}
	return foresees(s, virtualmachineinstance.ReasonImporting) || says(virtv1.VirtualMachineInstanceProvisioning, corev1.ConditionTrue, virtualmachineinstance.ReasonImporting)(s)
}

func starting(s *scope) bool {
	if s.vmi != nil {
		return s.vmi.IsUnprocessed() || s.vmi.IsScheduling() || s.vmi.IsScheduled()
	}
	return s.wanted() && s.startFailure == nil && s.failure == nil
}

func crashLooping(s *scope) bool {
	return s.wanted() && s.startFailure != nil && s.startFailure.ConsecutiveFailCount > 0 && (s.vmi == nil || s.vmi.IsFinal())
}
