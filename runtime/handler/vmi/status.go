package vmi

import (
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	v1 "kubevirt.io/api/core/v1"

	"github.com/slipway-vm/slipway/runtime/protocol"
	"github.com/slipway-vm/slipway/runtime/volume"
)

// runtimeStatus is the part of a VMI's status that virt-handler owns, as it is applied:
// whole each time, for what an apply leaves out is removed.
type runtimeStatus struct {
	Phase                     v1.VirtualMachineInstancePhase                      `json:"phase,omitempty"`
	PhaseTransitionTimestamps []v1.VirtualMachineInstancePhaseTransitionTimestamp `json:"phaseTransitionTimestamps,omitempty"`
	Conditions                []v1.VirtualMachineInstanceCondition                `json:"conditions,omitempty"`
	Interfaces                []v1.VirtualMachineInstanceNetworkInterface         `json:"interfaces,omitempty"`
	GuestOSInfo               v1.VirtualMachineInstanceGuestOSInfo                `json:"guestOSInfo,omitzero"`
	VolumeStatus              []v1.VolumeStatus                                   `json:"volumeStatus,omitempty"`
	Machine                   *v1.Machine                                         `json:"machine,omitempty"`
	FSFreezeStatus            string                                              `json:"fsFreezeStatus,omitempty"`
	CurrentCPUTopology        *v1.CPUTopology                                     `json:"currentCPUTopology,omitempty"`
	Memory                    *v1.MemoryStatus                                    `json:"memory,omitempty"`
	ChangedBlockTracking      *backupStatus                                       `json:"changedBlockTracking,omitempty"`
}

// compute returns the status that follows from base and a pass; nil when there is
// nothing to say, as before a launcher has spoken, and once the VMI has ended: the
// first end is the true one, whatever the launcher says of what came of it.
func compute(s *scope, base *runtimeStatus, now metav1.Time) *runtimeStatus {
	if base.Phase == v1.Failed || base.Phase == v1.Succeeded {
		return nil
	}
	status := base.clone()
	since := now
	switch state := s.view.State; {
	case s.failure != nil:
		status.Phase = v1.Failed
	case state == nil || state.Phase == protocol.PhaseNone || state.Phase == protocol.PhaseStarting:
		if s.trouble == nil && !waits(state) && !silent(s) && (state == nil || !wasSilent(status)) {
			return nil
		}
	default:
		status.Phase = phaseOf(state.Phase)
		if !state.Since.IsZero() {
			since = metav1.NewTime(state.Since).Rfc3339Copy()
		}
		status.describe(s)
	}
	status.enter(since)
	setConditions(s, status, since, now)
	return status
}

// waits says whether the launcher said what its start waits for.
func waits(state *protocol.State) bool {
	return state != nil && state.Phase == protocol.PhaseStarting && state.Reason != ""
}

// clone is a copy whose lists can be changed; their items are only ever replaced.
func (r *runtimeStatus) clone() *runtimeStatus {
	out := *r
	out.PhaseTransitionTimestamps = slices.Clone(r.PhaseTransitionTimestamps)
	out.Conditions = slices.Clone(r.Conditions)
	return &out
}

// condition returns the condition of a kind, nil when there is none.
func (r *runtimeStatus) condition(kind v1.VirtualMachineInstanceConditionType) *v1.VirtualMachineInstanceCondition {
	for i := range r.Conditions {
		if r.Conditions[i].Type == kind {
			return &r.Conditions[i]
		}
	}
	return nil
}

// volume is the status of the volume called name, nil when there is none.
func (r *runtimeStatus) volume(name string) *v1.VolumeStatus {
	if r == nil {
		return nil
	}
	for i := range r.VolumeStatus {
		if r.VolumeStatus[i].Name == name {
			return &r.VolumeStatus[i]
		}
	}
	return nil
}

// current is the runtime part of the status as it stands.
func current(vmi *v1.VirtualMachineInstance) *runtimeStatus {
	old := vmi.Status.DeepCopy()
	status := &runtimeStatus{
		Phase: old.Phase, PhaseTransitionTimestamps: old.PhaseTransitionTimestamps, Interfaces: old.Interfaces,
		GuestOSInfo: old.GuestOSInfo, VolumeStatus: old.VolumeStatus, Machine: old.Machine, FSFreezeStatus: old.FSFreezeStatus,
		CurrentCPUTopology: old.CurrentCPUTopology, Memory: old.Memory, ChangedBlockTracking: currentBackup(old),
	}
	for _, condition := range old.Conditions {
		if slices.Contains(ownedConditions, condition.Type) {
			status.Conditions = append(status.Conditions, condition)
		}
	}
	return status
}

func phaseOf(phase protocol.Phase) v1.VirtualMachineInstancePhase {
	switch phase {
	case protocol.PhaseShutdown:
		return v1.Succeeded
	case protocol.PhaseCrashed, protocol.PhaseFailed:
		return v1.Failed
	}
	return v1.Running
}

// enter records when the phase was first entered.
func (r *runtimeStatus) enter(since metav1.Time) {
	for _, transition := range r.PhaseTransitionTimestamps {
		if transition.Phase == r.Phase {
			return
		}
	}
	r.PhaseTransitionTimestamps = append(r.PhaseTransitionTimestamps,
		v1.VirtualMachineInstancePhaseTransitionTimestamp{Phase: r.Phase, PhaseTransitionTimestamp: since})
}

// describe says what the domain has, as far as the launcher told; an ended domain keeps
// what was said of it.
func (r *runtimeStatus) describe(s *scope) {
	state := s.view.State
	if final(state.Phase) {
		return
	}
	if s.view.Synced != nil {
		r.Interfaces = interfaces(s.view.Synced.Facts.Interfaces, s.view.Synced.PodInterface, state.Interfaces)
	}
	// A guest without disks may have its memory dumped, too.
	if state.Disks != nil || state.Filesystems != nil || s.backup != nil || len(volume.DumpClaims(s.vmi)) > 0 || slices.ContainsFunc(r.VolumeStatus, cameLate) {
		r.VolumeStatus = volumeStatus(s)
	}
	r.ChangedBlockTracking = backupOf(s)
	if state.Machine != "" {
		r.Machine = &v1.Machine{Type: state.Machine}
	}
	if state.GuestOS != nil {
		r.GuestOSInfo = *state.GuestOS
	}
	r.CurrentCPUTopology, r.Memory = currentTopology(s.vmi, state.VCPUs), memoryStatus(state.Memory)
	r.FSFreezeStatus = ""
	if state.Frozen {
		r.FSFreezeStatus = protocol.FSFrozen
	}
}

// Sources of what is known of an interface.
const (
	fromDomain = "domain"
	fromAgent  = "guest-agent"
)

// interfaces joins what was prepared with what the guest's agent sees: by hardware
// address, since the guest names its interfaces itself.
func interfaces(prepared []protocol.Interface, podInterface string, seen []protocol.GuestInterface) []v1.VirtualMachineInstanceNetworkInterface {
	var out []v1.VirtualMachineInstanceNetworkInterface
	known := map[string]bool{}
	for _, one := range prepared {
		status := v1.VirtualMachineInstanceNetworkInterface{
			Name: one.Name, MAC: one.MAC, IPs: one.PodIPs, PodInterfaceName: podInterface,
			InfoSource: fromDomain, QueueCount: int32(one.Queues), LinkState: "up",
		}
		if len(one.PodIPs) > 0 {
			status.IP = one.PodIPs[0] // the guest's own address is no use outside of the pod
		}
		for _, guest := range seen {
			if strings.EqualFold(guest.MAC, one.MAC) {
				status.InterfaceName, status.InfoSource = guest.Name, fromDomain+", "+fromAgent
				known[guest.Name] = true
			}
		}
		out = append(out, status)
	}
	for _, guest := range seen {
		if known[guest.Name] || guest.Name == "lo" || guest.MAC == "" {
			continue
		}
		status := v1.VirtualMachineInstanceNetworkInterface{
			InterfaceName: guest.Name, MAC: guest.MAC, IPs: guest.IPs, InfoSource: fromAgent,
		}
		if len(guest.IPs) > 0 {
			status.IP = guest.IPs[0]
		}
		out = append(out, status)
	}
	return out
}
