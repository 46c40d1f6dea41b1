package vmi

import (
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	v1 "kubevirt.io/api/core/v1"

	"github.com/slipway-vm/slipway/internal/names"
	"github.com/slipway-vm/slipway/runtime/protocol"
)

// reasonResponsive is the reason of the event when a part answers again.
const reasonResponsive v1.SyncEvent = "Responsive"

// unresponsive is what Ready says of a part that does not answer. A guest whose QEMU does not answer
// has no devices; of one whose libvirt or launcher does not, nobody knows: it most likely goes on.
var unresponsive = map[protocol.Part]struct {
	status corev1.ConditionStatus
	reason string
	means  string
}{
	protocol.PartQEMU: {
		corev1.ConditionFalse, names.ReasonQEMUUnresponsive,
		"the guest stands still, or waits for its storage; it goes on when QEMU does",
	},
	protocol.PartLibvirt: {
		corev1.ConditionUnknown, names.ReasonLibvirtUnresponsive,
		"the guest goes on, and cannot be looked at or changed",
	},
	protocol.PartLauncher: {
		corev1.ConditionUnknown, names.ReasonLauncherUnresponsive,
		"the guest goes on, and cannot be looked at or changed",
	},
}

// partOf is the part that a reason of Ready is about; empty for other reasons.
func partOf(reason string) protocol.Part {
	for part, words := range unresponsive {
		if words.reason == reason {
			return part
		}
	}
	return ""
}

// silent says whether a part of a VM that is to run does not answer. A launcher that was never heard
// of may not have begun.
func silent(s *scope) bool {
	return s.view.Silence != nil && (s.view.State != nil || s.vmi.Status.Phase == v1.Running)
}

// silence is what Ready says while a part does not answer.
func silence(s *scope) (status corev1.ConditionStatus, reason, message string) {
	words := unresponsive[s.view.Silence.Part]
	verb := "has not answered"
	if s.view.Silence.Part == protocol.PartLauncher && s.view.Launcher == nil {
		verb = "has not been connected to virt-handler"
	}
	return words.status, words.reason, fmt.Sprintf("%s %s since %s: %s. To end it by force: virtctl stop --force --grace-period 0",
		s.view.Silence.Part, verb, s.view.Silence.Since.UTC().Format(time.RFC3339), words.means)
}

// wasSilent says whether status tells of a part that does not answer.
func wasSilent(status *runtimeStatus) bool {
	ready := status.condition(v1.VirtualMachineInstanceReady)
	return ready != nil && partOf(ready.Reason) != ""
}

// unheard says whether status tells of a part that does not answer, and it is not known yet
// whether it does by now: after a restart of virt-handler, or when the launcher has just connected.
func unheard(s *scope, status *runtimeStatus) bool {
	return status.Phase == v1.Running && wasSilent(status) && !s.view.Heard && !silent(s)
}

// tellSilence tells of a part that stopped to answer, or began again.
func (r *Reconciler) tellSilence(s *scope, before, after *runtimeStatus) {
	old, now := before.condition(v1.VirtualMachineInstanceReady), after.condition(v1.VirtualMachineInstanceReady)
	if now == nil || old != nil && old.Reason == now.Reason {
		return
	}
	if partOf(now.Reason) != "" {
		r.event(s.vmi, corev1.EventTypeWarning, v1.SyncEvent(now.Reason), now.Message)
		return
	}
	if old != nil && partOf(old.Reason) != "" && after.Phase == before.Phase {
		r.event(s.vmi, corev1.EventTypeNormal, reasonResponsive, string(partOf(old.Reason))+" answers again")
	}
}
