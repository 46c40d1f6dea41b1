package virtualmachineinstance

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	virtv1 "kubevirt.io/api/core/v1"

	"github.com/slipway-vm/slipway/internal/names"
)

func TestAChangeOfTheSizeIsTold(t *testing.T) {
	now := time.Date(2026, 9, 1, 12, 0, 0, 0, time.UTC)
	no := &refusal{reason: "Infeasible", message: "no room"}
	condition := func(status corev1.ConditionStatus, reason string, age time.Duration) *virtv1.VirtualMachineInstanceCondition {
		return &virtv1.VirtualMachineInstanceCondition{
			Type: conditionVCPUChange, Status: status, Reason: reason, LastTransitionTime: metav1.NewTime(now.Add(-age)),
		}
	}
	for name, c := range map[string]struct {
		old        *virtv1.VirtualMachineInstanceCondition
		fits       bool
		refusal    *refusal
		wantStatus corev1.ConditionStatus
		wantReason string
		wantEvent  bool
	}{
		"the pod is being resized":         {wantStatus: corev1.ConditionTrue, wantReason: reasonResizing},
		"the pod has the room":             {fits: true, wantStatus: corev1.ConditionTrue, wantReason: names.ReasonPodResized},
		"the node has no room":             {refusal: no, wantStatus: corev1.ConditionFalse, wantReason: "Infeasible", wantEvent: true},
		"the node has no room, still":      {old: condition(corev1.ConditionFalse, "Infeasible", time.Hour), refusal: no, wantStatus: corev1.ConditionFalse, wantReason: "Infeasible"},
		"the node has room after all":      {old: condition(corev1.ConditionFalse, "Deferred", time.Hour), fits: true, wantStatus: corev1.ConditionTrue, wantReason: names.ReasonPodResized},
		"the guest does not change":        {old: condition(corev1.ConditionTrue, names.ReasonPodResized, guestPatience), fits: true, wantStatus: corev1.ConditionFalse, wantReason: reasonGuestStayed, wantEvent: true},
		"the guest does not change, still": {old: condition(corev1.ConditionFalse, reasonGuestStayed, time.Hour), fits: true, wantStatus: corev1.ConditionFalse, wantReason: reasonGuestStayed},
	} {
		t.Run(name, func(t *testing.T) {
			recorder := events.NewFakeRecorder(1)
			r, s := &Reconciler{events: recorder}, &scope{vmi: &virtv1.VirtualMachineInstance{}, now: now}
			if c.old != nil {
				s.wanted.Conditions = append(s.wanted.Conditions, *c.old)
			}
			r.noteSize(s, conditionVCPUChange, c.fits, c.refusal)
			got := s.condition(conditionVCPUChange)
			if got == nil || got.Status != c.wantStatus || got.Reason != c.wantReason {
				t.Errorf("got %+v, want %s, %s", got, c.wantStatus, c.wantReason)
			}
			if told := len(recorder.Events) > 0; told != c.wantEvent {
				t.Errorf("told by an event: %v, want %v", told, c.wantEvent)
			}
		})
	}
}

func TestResourcesCoverOthers(t *testing.T) {
	list := func(cpu, memory string) corev1.ResourceRequirements {
		return corev1.ResourceRequirements{Requests: corev1.ResourceList{
			corev1.ResourceCPU: resource.MustParse(cpu), corev1.ResourceMemory: resource.MustParse(memory),
		}}
	}
	for name, c := range map[string]struct {
		has, want corev1.ResourceRequirements
		covered   bool
	}{
		"the same":            {has: list("200m", "1Gi"), want: list("200m", "1Gi"), covered: true},
		"rounded shares":      {has: list("199m", "1Gi"), want: list("200m", "1Gi"), covered: true},
		"less memory":         {has: list("200m", "900Mi"), want: list("200m", "1Gi")},
		"fewer processors":    {has: list("100m", "1Gi"), want: list("200m", "1Gi")},
		"nothing is said yet": {want: list("200m", "1Gi")},
	} {
		t.Run(name, func(t *testing.T) {
			if got := covers(c.has, c.want, 1); got != c.covered {
				t.Errorf("got %v, want %v", got, c.covered)
			}
		})
	}
}
