package replicaset

import (
	"errors"
	"reflect"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	virtv1 "kubevirt.io/api/core/v1"
)

func newScope(set *virtv1.VirtualMachineInstanceReplicaSet, instances ...string) *scope {
	s := &scope{now: noon}
	var all []virtv1.VirtualMachineInstance
	for _, words := range instances {
		all = append(all, anInstance(words))
	}
	s.decide(set, labels.SelectorFromSet(labels.Set{"app": "web"}), all)
	return s
}

func TestTheStatusCountsThoseThatServe(t *testing.T) {
	status := statusOf(newScope(newSet(), "a ready", "b", "c ready failed", "d ready deleted", "e nobody's ready", "f another's"))
	want := virtv1.VirtualMachineInstanceReplicaSetStatus{Replicas: 3, ReadyReplicas: 2, LabelSelector: "app=web"}
	if !reflect.DeepEqual(status, want) {
		t.Errorf("got %+v, want %+v", status, want)
	}
}

func TestConditionsAreThereWhileTheyHold(t *testing.T) {
	earlier := metav1.NewTime(noon.Add(-time.Hour))
	s := newScope(newSet(paused))
	s.set.Status.Conditions = []virtv1.VirtualMachineInstanceReplicaSetCondition{
		{Type: virtv1.VirtualMachineInstanceReplicaSetReplicaFailure, Status: "True", Reason: reasonDeleteFailed, LastTransitionTime: earlier},
	}
	if got := conditions(s); len(got) != 1 || got[0].Type != virtv1.VirtualMachineInstanceReplicaSetReplicaPaused || got[0].Status != "True" ||
		got[0].Reason != "Paused" || !got[0].LastTransitionTime.Equal(&metav1.Time{Time: noon}) {
		t.Errorf("paused: %+v", got)
	}
	s.set.Spec.Paused = false
	_ = s.fail(reasonCreateFailed, errors.New("exceeded quota"))
	if got := conditions(s); len(got) != 1 || got[0].Type != virtv1.VirtualMachineInstanceReplicaSetReplicaFailure || got[0].Reason != "FailedCreate" ||
		got[0].Message != "exceeded quota" || !got[0].LastTransitionTime.Equal(&earlier) {
		t.Errorf("failed again: %+v", got)
	}
	s.failure = nil
	if got := conditions(s); got != nil {
		t.Errorf("after both: %+v", got)
	}
}
