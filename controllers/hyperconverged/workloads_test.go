package hyperconverged

import (
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestWorkloadsSayWhatTheyLack(t *testing.T) {
	replacing := deployment(2, 2, 1, 1)
	replacing.Status.Replicas = 2
	for name, c := range map[string]struct {
		got  workload
		want string // part of what is missing; ready when empty
	}{
		"a deployment that is up":         {ofDeployment(deployment(2, 2, 1, 1)), ""},
		"one that was not looked at":      {ofDeployment(deployment(3, 2, 1, 1)), "rollout not started"},
		"one with an old pod":             {ofDeployment(deployment(2, 2, 0, 1)), "0 of 1 pods are of the wanted version"},
		"one whose old pod alone is up":   {ofDeployment(replacing), "1 of 2 pods are of a former version yet"},
		"one whose pod is not ready":      {ofDeployment(deployment(2, 2, 1, 0)), "0 of 1 pods are available"},
		"daemons on every node":           {ofDaemonSet(daemons(3, 3, 3)), ""},
		"daemons that one node lacks":     {ofDaemonSet(daemons(3, 3, 2)), "available on 2 of 3 nodes"},
		"daemons of which one is old":     {ofDaemonSet(daemons(3, 2, 3)), "2 of 3 nodes run the wanted version"},
		"daemons that no node is to have": {ofDaemonSet(daemons(0, 0, 0)), "no node is selected"},
	} {
		t.Run(name, func(t *testing.T) {
			if (c.want == "") != (c.got.Missing == "") || !strings.Contains(c.got.Missing, c.want) {
				t.Errorf("got %q, want %q", c.got.Missing, c.want)
			}
		})
	}
}

func TestTroubleOfAPod(t *testing.T) {
	waiting := func(reason, message string) corev1.PodStatus {
		return corev1.PodStatus{ContainerStatuses: []corev1.ContainerStatus{{
			Image: "registry.test/x:1", State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason, Message: message}},
		}}}
	}
	crashed := waiting("CrashLoopBackOff", "back-off 10s")
	crashed.ContainerStatuses[0].LastTerminationState.Terminated = &corev1.ContainerStateTerminated{ExitCode: 2, Message: "line\nslipway: no lease"}
	for name, c := range map[string]struct {
		status  corev1.PodStatus
		want    string
		failing bool
	}{
		"runs":         {corev1.PodStatus{}, "", false},
		"starts":       {waiting("ContainerCreating", ""), "ContainerCreating", false},
		"has no image": {waiting("ImagePullBackOff", "long words"), "image registry.test/x:1 cannot be pulled", true},
		"crashes":      {crashed, "CrashLoopBackOff, last exit code 2 slipway: no lease", true},
		"fits nowhere": {corev1.PodStatus{Conditions: []corev1.PodCondition{{
			Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: "Unschedulable", Message: "0/1 nodes are available",
		}}}, "Unschedulable: 0/1 nodes are available", false},
	} {
		t.Run(name, func(t *testing.T) {
			got, failing := trouble(&corev1.Pod{Status: c.status})
			if got != c.want || failing != c.failing {
				t.Errorf("got %q, failing %v; want %q, %v", got, failing, c.want, c.failing)
			}
		})
	}
}

func deployment(generation, observed int64, updated, available int32) *appsv1.Deployment {
	return &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Generation: generation},
		Status:     appsv1.DeploymentStatus{ObservedGeneration: observed, UpdatedReplicas: updated, AvailableReplicas: available},
	}
}

func daemons(desired, updated, available int32) *appsv1.DaemonSet {
	return &appsv1.DaemonSet{Status: appsv1.DaemonSetStatus{
		DesiredNumberScheduled: desired, UpdatedNumberScheduled: updated, NumberAvailable: available,
	}}
}
