package vmi

import (
	"cmp"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	v1 "kubevirt.io/api/core/v1"

	"github.com/slipway-vm/slipway/runtime/protocol"
)

// Reasons of conditions that the field has no word for.
const (
	ReasonContainerDiskLost    = "ContainerDiskLost"
	ReasonContainerDiskFailed  = "ContainerDiskFailed"
	ReasonGuestShutDown        = "GuestShutDown"
	ReasonGuestCrashed         = "GuestCrashed"
	ReasonGuestPanicked        = "GuestPanicked"       // also of the event
	ReasonLivenessProbeFailed  = "LivenessProbeFailed" // also of the event
	ReasonStartFailed          = "StartFailed"
	ReasonMigrationUnsupported = "LiveMigrationNotSupported"
	ReasonKVMNotUsed           = "HardwareVirtualizationNotAvailable"
	ReasonPaused               = "Paused"
)

// messageMounts is the field's about a guest that mounts folders of its pod.
const messageMounts = "VMI uses virtiofs"

// Words of the field about a paused guest.
const (
	pausedByIOError   = "PausedIOError"
	pausedByUser      = "PausedByUser"
	messageIOError    = "VMI was paused, low-level IO error detected"
	messagePausedUser = "VMI was paused by user"
)

// ownedConditions are the condition types that virt-handler writes.
var ownedConditions = []v1.VirtualMachineInstanceConditionType{
	v1.VirtualMachineInstanceReady,
	v1.VirtualMachineInstanceIsMigratable,
	v1.VirtualMachineInstanceAgentConnected,
	v1.VirtualMachineInstancePaused,
	v1.VirtualMachineInstanceSoftwareEmulation,
	v1.VirtualMachineInstanceAccessCredentialsSynchronized,
}

// setConditions computes every owned condition. What comes with the phase holds since
// then, the rest since now.
func setConditions(s *scope, status *runtimeStatus, since, now metav1.Time) {
	set := conditionSetter{status: status, since: since}
	state := s.view.State
	if status.Phase == v1.Running && (s.vmi.Spec.ReadinessProbe != nil || silent(s) || wasSilent(status)) {
		set.since = now // it follows the probe, or what answers
	}
	if !unheard(s, status) {
		set.put(ready(s, status.Phase))
	}
	set.since = since
	if state == nil && silent(s) {
		return // what was said of the guest stays
	}
	if status.Phase != v1.Running || state == nil {
		set.remove(v1.VirtualMachineInstanceAgentConnected)
		set.remove(v1.VirtualMachineInstancePaused)
		return
	}
	set.put(unmovable(s.vmi))
	set.when(!state.KVM, v1.VirtualMachineInstanceCondition{
		Type: v1.VirtualMachineInstanceSoftwareEmulation, Status: corev1.ConditionTrue,
		Reason: ReasonKVMNotUsed, Message: "the guest runs under software emulation, which is slow",
	})
	set.since = now
	set.when(state.AgentConnected, v1.VirtualMachineInstanceCondition{
		Type: v1.VirtualMachineInstanceAgentConnected, Status: corev1.ConditionTrue,
	})
	set.when(state.Phase == protocol.PhasePaused, paused(state))
	set.when(state.AccessCredentials != nil, accessSynchronized(state.AccessCredentials))
}

// unmovable says why the guest cannot move to another node while it runs.
func unmovable(vmi *v1.VirtualMachineInstance) v1.VirtualMachineInstanceCondition {
	condition := v1.VirtualMachineInstanceCondition{
		Type: v1.VirtualMachineInstanceIsMigratable, Status: corev1.ConditionFalse,
		Reason: ReasonMigrationUnsupported, Message: "live migration is not supported yet",
	}
	if len(vmi.Spec.Domain.Devices.Filesystems) > 0 {
		condition.Reason, condition.Message = v1.VirtualMachineInstanceReasonVirtIOFSNotMigratable, messageMounts
	}
	return condition
}

// accessSynchronized says whether the guest has its keys and passwords.
func accessSynchronized(access *protocol.AccessCredentials) v1.VirtualMachineInstanceCondition {
	condition := v1.VirtualMachineInstanceCondition{
		Type: v1.VirtualMachineInstanceAccessCredentialsSynchronized, Status: corev1.ConditionFalse,
	}
	if access == nil {
		return condition
	}
	condition.Message = access.Message
	if access.Synchronized {
		condition.Status = corev1.ConditionTrue
	}
	return condition
}

// paused says why the guest stands still.
func paused(state *protocol.State) v1.VirtualMachineInstanceCondition {
	condition := v1.VirtualMachineInstanceCondition{
		Type: v1.VirtualMachineInstancePaused, Status: corev1.ConditionTrue, Reason: cmp.Or(state.Reason, ReasonPaused),
	}
	switch condition.Reason {
	case pausedByUser:
		condition.Message = messagePausedUser
	case pausedByIOError:
		condition.Message = messageIOError
		if state.Message != "" {
			condition.Message += ": " + state.Message
		}
	default:
		condition.Message = cmp.Or(state.Message, "the guest is paused")
	}
	return condition
}

// ready says whether the guest runs, and if it does not, why.
func ready(s *scope, phase v1.VirtualMachineInstancePhase) v1.VirtualMachineInstanceCondition {
	condition := v1.VirtualMachineInstanceCondition{Type: v1.VirtualMachineInstanceReady, Status: corev1.ConditionFalse}
	switch {
	case s.failure != nil:
		condition.Reason, condition.Message = s.failure.reason, s.failure.message
	case silent(s) && (phase == v1.Running || phase == v1.Scheduled):
		condition.Status, condition.Reason, condition.Message = silence(s)
	case phase == v1.Running:
		condition.Status, condition.Reason, condition.Message = running(s)
	case phase == v1.Succeeded:
		condition.Reason = cmp.Or(s.view.State.Reason, ReasonGuestShutDown)
		condition.Message = cmp.Or(s.view.State.Message, "the guest was shut down")
	case phase == v1.Failed && s.view.State.Phase == protocol.PhaseFailed:
		condition.Reason = cmp.Or(s.view.State.Reason, ReasonStartFailed)
		condition.Message = cmp.Or(s.view.State.Message, "the guest could not be started")
	case phase == v1.Failed:
		condition.Reason = cmp.Or(s.view.State.Reason, ReasonGuestCrashed)
		condition.Message = cmp.Or(s.view.State.Message, "the guest crashed")
	case s.trouble != nil:
		condition.Reason = string(v1.SyncFailed)
		condition.Message = fmt.Sprintf("%v; trying again", s.trouble)
	case waits(s.view.State):
		condition.Reason, condition.Message = s.view.State.Reason, s.view.State.Message
	default:
		condition.Reason, condition.Message = v1.GuestNotRunningReason, "the guest is starting"
	}
	return condition
}

// running says whether a guest that has started is ready.
func running(s *scope) (status corev1.ConditionStatus, reason, message string) {
	if s.view.State != nil && s.view.State.Phase == protocol.PhasePaused {
		return corev1.ConditionFalse, v1.GuestNotRunningReason, "the guest is paused"
	}
	return probed(s)
}

// probed says whether a running guest is ready: as its readiness probe finds, whose result
// is the pod's, and without one always.
func probed(s *scope) (status corev1.ConditionStatus, reason, message string) {
	if s.vmi.Spec.ReadinessProbe == nil {
		return corev1.ConditionTrue, "", ""
	}
	found := readiness{}
	if s.pod != nil {
		found = readyOf(s.pod)
	}
	switch found.status {
	case "":
		return corev1.ConditionFalse, v1.PodConditionMissingReason, "virt-launcher pod is missing the Ready condition"
	case corev1.ConditionTrue:
		return found.status, "", ""
	}
	return corev1.ConditionFalse, found.reason, found.message
}

// conditionSetter changes conditions in place, so that their order is stable.
type conditionSetter struct {
	status *runtimeStatus
	since  metav1.Time
}

// put sets condition; its transition time is kept while its status stays.
func (c conditionSetter) put(condition v1.VirtualMachineInstanceCondition) {
	condition.LastTransitionTime = c.since
	for i, old := range c.status.Conditions {
		if old.Type != condition.Type {
			continue
		}
		if old.Status == condition.Status {
			condition.LastTransitionTime = old.LastTransitionTime
		}
		c.status.Conditions[i] = condition
		return
	}
	c.status.Conditions = append(c.status.Conditions, condition)
}

func (c conditionSetter) remove(kind v1.VirtualMachineInstanceConditionType) {
	c.status.Conditions = slices.DeleteFunc(c.status.Conditions, func(old v1.VirtualMachineInstanceCondition) bool {
		return old.Type == kind
	})
}

// when puts condition if holds, and removes it otherwise.
func (c conditionSetter) when(holds bool, condition v1.VirtualMachineInstanceCondition) {
	if holds {
		c.put(condition)
		return
	}
	c.remove(condition.Type)
}
