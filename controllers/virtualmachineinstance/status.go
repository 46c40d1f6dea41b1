package virtualmachineinstance

import (
	"context"
	"fmt"
	"maps"
	"reflect"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	virtv1 "kubevirt.io/api/core/v1"

	"github.com/slipway-vm/slipway/internal/apply"
	"github.com/slipway-vm/slipway/internal/names"
)

// Condition types of a VMI that virt-controller owns. PodScheduled is the pod's own,
// copied while it is false.
const (
	conditionPodScheduled      virtv1.VirtualMachineInstanceConditionType = "PodScheduled"
	conditionSynchronized                                                 = virtv1.VirtualMachineInstanceSynchronized
	conditionProvisioning                                                 = virtv1.VirtualMachineInstanceProvisioning
	conditionDataVolumes                                                  = virtv1.VirtualMachineInstanceDataVolumesReady
	conditionVCPUChange                                                   = virtv1.VirtualMachineInstanceVCPUChange
	conditionMemoryChange                                                 = virtv1.VirtualMachineInstanceMemoryChange
	conditionEvictionRequested                                            = virtv1.VirtualMachineInstanceEvictionRequested
)

var ownedConditions = []virtv1.VirtualMachineInstanceConditionType{
	conditionPodScheduled, conditionSynchronized, conditionProvisioning, conditionDataVolumes,
	conditionVCPUChange, conditionMemoryChange, conditionEvictionRequested,
}

// status is the part of a VMI's status that virt-controller writes.
type status struct {
	// Phase is written by virt-controller until virt-handler reports on the guest, and at the end.
	Phase       virtv1.VirtualMachineInstancePhase
	Reason      string
	NodeName    string
	ActivePods  map[types.UID]string
	Transitions []virtv1.VirtualMachineInstancePhaseTransitionTimestamp
	Conditions  []virtv1.VirtualMachineInstanceCondition
	// Label is the value of the label that tells virt-handler whose VMI it is.
	Label string
	// Launcher is the image that the launcher runs; Outdated says that new ones run another.
	Launcher string
	Outdated bool
	// CID is the guest's address for sockets of its node; nil for none.
	CID *uint32
}

// statusOf returns our part of vmi's status.
func statusOf(vmi *virtv1.VirtualMachineInstance) status {
	s := status{
		Phase:       vmi.Status.Phase,
		Reason:      vmi.Status.Reason,
		NodeName:    vmi.Status.NodeName,
		ActivePods:  maps.Clone(vmi.Status.ActivePods),
		Transitions: slices.Clone(vmi.Status.PhaseTransitionTimestamps),
		Label:       vmi.Labels[virtv1.NodeNameLabel],
		Launcher:    vmi.Status.LauncherContainerImageVersion,
		CID:         vmi.Status.VSOCKCID,
	}
	_, s.Outdated = vmi.Labels[virtv1.OutdatedLauncherImageLabel]
	for _, c := range vmi.Status.Conditions {
		if slices.Contains(ownedConditions, c.Type) {
			s.Conditions = append(s.Conditions, c)
		}
	}
	return s
}

// enter changes the phase and notes when.
func (s *scope) enter(phase virtv1.VirtualMachineInstancePhase) {
	if s.wanted.Phase == phase {
		return
	}
	s.wanted.Phase = phase
	s.wanted.Transitions = append(s.wanted.Transitions, virtv1.VirtualMachineInstancePhaseTransitionTimestamp{
		Phase: phase, PhaseTransitionTimestamp: metav1.NewTime(s.now),
	})
}

// setCondition sets a condition, keeping the time of its last change of status.
func (s *scope) setCondition(kind virtv1.VirtualMachineInstanceConditionType, value corev1.ConditionStatus, reason, message string) {
	wanted := virtv1.VirtualMachineInstanceCondition{
		Type: kind, Status: value, Reason: reason, Message: message, LastTransitionTime: metav1.NewTime(s.now),
	}
	for i, old := range s.wanted.Conditions {
		if old.Type != kind {
			continue
		}
		if old.Status == value {
			wanted.LastTransitionTime = old.LastTransitionTime
		}
		s.wanted.Conditions[i] = wanted
		return
	}
	s.wanted.Conditions = append(s.wanted.Conditions, wanted)
}

// condition is one of ours as the pass has it by now; nil for none.
func (s *scope) condition(kind virtv1.VirtualMachineInstanceConditionType) *virtv1.VirtualMachineInstanceCondition {
	for i := range s.wanted.Conditions {
		if s.wanted.Conditions[i].Type == kind {
			return &s.wanted.Conditions[i]
		}
	}
	return nil
}

// dropCondition removes a condition.
func (s *scope) dropCondition(kind virtv1.VirtualMachineInstanceConditionType) {
	s.wanted.Conditions = slices.DeleteFunc(s.wanted.Conditions, func(c virtv1.VirtualMachineInstanceCondition) bool {
		return c.Type == kind
	})
}

// writeStatus writes what the pass decided, when it differs from what the VMI has. The
// write names the VMI's resourceVersion: a pass over a stale object changes nothing,
// and a phase that virt-handler has written meanwhile is never taken back.
func (r *Reconciler) writeStatus(ctx context.Context, s *scope) error {
	if reflect.DeepEqual(s.wanted, statusOf(s.vmi)) {
		return nil
	}
	labels := map[string]string{}
	if s.wanted.Label != "" {
		labels[virtv1.NodeNameLabel] = s.wanted.Label
	}
	if s.wanted.Outdated {
		labels[virtv1.OutdatedLauncherImageLabel] = "true" // empty in the field, where people ask whether it exists, too
	}
	metadata := map[string]any{"resourceVersion": s.vmi.ResourceVersion, "labels": labels}
	fields := map[string]any{"metadata": metadata, "status": map[string]any{
		"phase":                         s.wanted.Phase,
		"reason":                        s.wanted.Reason,
		"phaseTransitionTimestamps":     s.wanted.Transitions,
		"nodeName":                      s.wanted.NodeName,
		"activePods":                    s.wanted.ActivePods,
		"conditions":                    s.wanted.Conditions,
		"launcherContainerImageVersion": s.wanted.Launcher,
		"VSOCKCID":                      s.wanted.CID,
	}}
	is, err := apply.FieldsAndRead(ctx, r.Client, s.vmi, names.ManagerController, fields)
	if err != nil {
		return fmt.Errorf("writing the status of %s/%s: %w", s.vmi.Namespace, s.vmi.Name, err)
	}
	r.written.note(s.vmi, is.GetResourceVersion(), r.now())
	return nil
}
