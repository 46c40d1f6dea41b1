package hyperconverged

import (
	"errors"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	virtv1 "kubevirt.io/api/core/v1"

	hcov1 "github.com/slipway-vm/slipway/internal/api/hco/v1"
)

var (
	readyParts   = []workload{{Name: "virt-api"}, {Name: "virt-handler"}}
	waitingParts = []workload{{Name: "virt-api"}, {Name: "virt-handler", Missing: "available on 0 of 1 nodes"}}
	failingParts = []workload{{Name: "virt-api", Missing: "0 of 1 pods are available (pod virt-api-1: image x cannot be pulled)", Failing: true}}
)

func TestSummarize(t *testing.T) {
	deleting := metav1.Now()
	cases := map[string]struct {
		scope                                      scope
		available, progressing, degraded, complete bool
		health, reason                             string // reason of Degraded, else of Progressing
	}{
		"everything is ready": {
			scope: scope{workloads: readyParts}, available: true, complete: true, health: hcov1.HealthHealthy, reason: ReasonCompleted,
		},
		"a component is on its way": {
			scope: scope{workloads: waitingParts}, progressing: true, complete: true, health: hcov1.HealthWarning, reason: ReasonDeploying,
		},
		"a component does not come up by waiting": {
			scope: scope{workloads: failingParts}, progressing: true, degraded: true, complete: true, health: hcov1.HealthError, reason: ReasonFailing,
		},
		"a namespace for tasks is missing": {
			scope:     scope{workloads: readyParts, waiting: []string{"namespace x does not exist"}},
			available: true, progressing: true, complete: true, health: hcov1.HealthWarning, reason: ReasonWaiting,
		},
		"another installation is in the cluster": {
			scope:    scope{err: &conflictError{found: []string{"KubeVirt kubevirt/kubevirt"}}},
			degraded: true, health: hcov1.HealthError, reason: ReasonConflict,
		},
		"a step failed while all is ready": {
			scope:     scope{workloads: readyParts, err: errors.New("applying x: refused")},
			available: true, degraded: true, health: hcov1.HealthError, reason: ReasonFailed,
		},
		"virtual machines keep it from being removed": {
			scope: scope{
				hco:       &hcov1.HyperConverged{ObjectMeta: metav1.ObjectMeta{DeletionTimestamp: &deleting}},
				workloads: readyParts, blockers: []string{"VirtualMachine a/b"},
			},
			available: true, degraded: true, health: hcov1.HealthError, reason: ReasonBlocked,
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			if c.scope.hco == nil {
				c.scope.hco = &hcov1.HyperConverged{}
			}
			sum := summarize(&c.scope)
			for question, pair := range map[string][2]bool{
				"Available":         {sum.Available.Yes, c.available},
				"Progressing":       {sum.Progressing.Yes, c.progressing},
				"Degraded":          {sum.Degraded.Yes, c.degraded},
				"ReconcileComplete": {sum.Complete.Yes, c.complete},
			} {
				if pair[0] != pair[1] {
					t.Errorf("%s: got %v, want %v", question, pair[0], pair[1])
				}
			}
			reason := sum.Degraded.Reason
			if !sum.Degraded.Yes {
				reason = sum.Progressing.Reason
			}
			if reason != c.reason {
				t.Errorf("reason: got %s, want %s", reason, c.reason)
			}
			if got := health(sum); got != c.health {
				t.Errorf("health: got %s, want %s", got, c.health)
			}
			for _, v := range []verdict{sum.Available, sum.Progressing, sum.Degraded, sum.Complete} {
				if v.Message == "" || v.Reason == "" {
					t.Errorf("a condition without reason or message: %+v", v)
				}
			}
		})
	}
}

func TestStatusIsWrittenOnlyWhenItDiffers(t *testing.T) {
	hco := &hcov1.HyperConverged{ObjectMeta: metav1.ObjectMeta{Generation: 3}}
	sum := summarize(&scope{hco: hco, workloads: readyParts})
	first := metav1.NewTime(time.Unix(1000, 0))
	hco.Status = hyperConvergedStatus(&scope{hco: hco}, sum, "v1", first)
	again := hyperConvergedStatus(&scope{hco: hco}, sum, "v1", metav1.NewTime(time.Unix(2000, 0)))
	if len(again.Conditions) != 5 || !again.Conditions[0].LastTransitionTime.Equal(&first) {
		t.Errorf("a later pass with nothing new changed the conditions: %+v", again.Conditions)
	}
	if again.ObservedGeneration != 3 || len(again.Versions) != 1 || again.Versions[0].Version != "v1" {
		t.Errorf("got generation %d, versions %v", again.ObservedGeneration, again.Versions)
	}
}

func TestKubeVirtStatusSpeaksTheFieldsWords(t *testing.T) {
	kubevirt := &virtv1.KubeVirt{ObjectMeta: metav1.ObjectMeta{Generation: 2}}
	now := metav1.NewTime(time.Unix(1000, 0))
	hco := &hcov1.HyperConverged{}
	status := kubeVirtStatus(kubevirt, summarize(&scope{hco: hco, workloads: waitingParts}), testOptions(), now)
	if status.Phase != virtv1.KubeVirtPhaseDeploying || status.ObservedKubeVirtVersion != "" {
		t.Errorf("while deploying: phase %s, observed version %q", status.Phase, status.ObservedKubeVirtVersion)
	}
	kubevirt.Status = status
	status = kubeVirtStatus(kubevirt, summarize(&scope{hco: hco, workloads: readyParts}), testOptions(), now)
	if status.Phase != virtv1.KubeVirtPhaseDeployed || *status.ObservedGeneration != 2 {
		t.Errorf("when ready: phase %s, generation %d", status.Phase, *status.ObservedGeneration)
	}
	reasons := map[virtv1.KubeVirtConditionType]string{}
	for _, c := range status.Conditions {
		reasons[c.Type] = string(c.Status) + " " + c.Reason
	}
	for kind, want := range map[virtv1.KubeVirtConditionType]string{
		"Created": "True AllResourcesCreated", "Available": "True AllComponentsReady",
		"Progressing": "False AllComponentsReady", "Degraded": "False AllComponentsReady",
	} {
		if reasons[kind] != want {
			t.Errorf("%s: got %q, want %q", kind, reasons[kind], want)
		}
	}
}
