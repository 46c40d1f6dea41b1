package virtualmachineinstance

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	virtv1 "kubevirt.io/api/core/v1"
)

func TestAConditionKeepsTheTimeOfItsLastChange(t *testing.T) {
	s := &scope{vmi: &virtv1.VirtualMachineInstance{}, now: noon}
	s.setCondition(conditionSynchronized, corev1.ConditionFalse, "A", "a")
	s.now = noon.Add(time.Minute)
	s.setCondition(conditionSynchronized, corev1.ConditionFalse, "B", "b")
	if c := s.wanted.Conditions[0]; !c.LastTransitionTime.Equal(&metav1.Time{Time: noon}) || c.Reason != "B" {
		t.Errorf("got %+v", c)
	}
	s.setCondition(conditionSynchronized, corev1.ConditionTrue, "C", "c")
	if c := s.wanted.Conditions[0]; !c.LastTransitionTime.Equal(&metav1.Time{Time: s.now}) || len(s.wanted.Conditions) != 1 {
		t.Errorf("got %+v", s.wanted.Conditions)
	}
}

func TestOnlyOurConditionsAreClaimed(t *testing.T) {
	vmi := &virtv1.VirtualMachineInstance{}
	vmi.Status.Conditions = []virtv1.VirtualMachineInstanceCondition{
		{Type: virtv1.VirtualMachineInstanceReady}, {Type: conditionProvisioning}, {Type: virtv1.VirtualMachineInstancePaused},
	}
	if got := statusOf(vmi).Conditions; len(got) != 1 || got[0].Type != conditionProvisioning {
		t.Errorf("got %+v", got)
	}
}

// In a fast start the VMI passes through Scheduling and Scheduled in one write, and both
// are in its history.
func TestAFastStartKeepsItsHistory(t *testing.T) {
	vmi := &virtv1.VirtualMachineInstance{}
	vmi.Status.Phase = virtv1.Pending
	s := &scope{vmi: vmi, now: noon, wanted: statusOf(vmi)}
	s.enterOnce(virtv1.Scheduling)
	s.enter(virtv1.Scheduled)
	s.enterOnce(virtv1.Scheduling)
	if s.wanted.Phase != virtv1.Scheduled || len(s.wanted.Transitions) != 2 {
		t.Errorf("phase %s after %+v", s.wanted.Phase, s.wanted.Transitions)
	}
}

// An upgrade changes the image of new launchers; those of running virtual machines are told apart.
func TestALauncherOfAFormerImageIsOutdated(t *testing.T) {
	container := corev1.Container{Name: "compute", Image: "launcher:1"}
	s := &scope{vmi: &virtv1.VirtualMachineInstance{}, pod: &corev1.Pod{Spec: corev1.PodSpec{Containers: []corev1.Container{container}}}}
	r := &Reconciler{options: Options{LauncherImage: "launcher:2"}}
	r.noteLauncher(s)
	if s.wanted.Launcher != "" || s.wanted.Outdated {
		t.Errorf("told before there is a node: %+v", s.wanted)
	}
	s.pod.Spec.NodeName = "here"
	r.noteLauncher(s)
	if s.wanted.Launcher != "launcher:1" || !s.wanted.Outdated {
		t.Errorf("got %+v", s.wanted)
	}
	r.options.LauncherImage = "launcher:1"
	r.noteLauncher(s)
	if s.wanted.Outdated {
		t.Error("outdated with the image of new ones")
	}
}

func TestNoteLacksTellsHelpFromTime(t *testing.T) {
	s := &scope{vmi: &virtv1.VirtualMachineInstance{}, now: noon}
	noteLacks(s, []lack{{needHelp, "H", "first"}, {needTime, "T", "second"}, {needHelp, "H2", "third"}})
	words := map[virtv1.VirtualMachineInstanceConditionType]string{}
	for _, c := range s.wanted.Conditions {
		words[c.Type] = string(c.Status) + " " + c.Reason + " " + c.Message
	}
	if words[conditionSynchronized] != "False H first; third" || words[conditionProvisioning] != "True T second" {
		t.Errorf("got %v", words)
	}
	noteLacks(s, []lack{{needTime, "T", "second"}})
	for _, c := range s.wanted.Conditions {
		if c.Type == conditionSynchronized {
			t.Errorf("what was mended is still told: %+v", c)
		}
	}
}

func TestAWaitingContainerIsTheFirstInOrder(t *testing.T) {
	waiting := corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{}}
	running := corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}
	done := corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{}}
	pod := &corev1.Pod{Status: corev1.PodStatus{
		InitContainerStatuses: []corev1.ContainerStatus{{Name: "a", State: done}, {Name: "b", State: waiting}},
		ContainerStatuses:     []corev1.ContainerStatus{{Name: "compute", State: waiting}},
	}}
	if got := waitingContainer(pod); got == nil || got.Name != "b" {
		t.Errorf("got %+v", got)
	}
	pod.Status.InitContainerStatuses[1].State = running
	if got := waitingContainer(pod); got != nil {
		t.Errorf("an init container runs, so nothing waits for long; got %+v", got)
	}
}
