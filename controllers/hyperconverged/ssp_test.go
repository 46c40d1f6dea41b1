package hyperconverged

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	conditionsv1 "github.com/openshift/custom-resource-status/conditions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	hcov1 "github.com/slipway-vm/slipway/internal/api/hco/v1"
	sspv1beta3 "github.com/slipway-vm/slipway/internal/api/ssp/v1beta3"
)

// What HyperConverged and its annotation say decides which namespaces get what.
func TestNamespacesOfTasksAndPipelines(t *testing.T) {
	const own = "kubevirt-hyperconverged"
	cases := map[string]struct {
		sources          hcov1.WorkloadSources
		patch            string
		tasks, pipelines []string
	}{
		"nothing is asked for": {},
		"both in two namespaces": {
			sources: hcov1.WorkloadSources{TektonNamespaces: []string{"a", "b"}},
			tasks:   []string{"a", "b"}, pipelines: []string{"a", "b"},
		},
		"tasks alone in one": {
			sources: hcov1.WorkloadSources{TektonTasksNamespace: "a"}, tasks: []string{"a"},
		},
		"pipelines in one more, and none twice": {
			sources: hcov1.WorkloadSources{TektonNamespaces: []string{"a", "b"}, TektonPipelinesNamespace: "b"},
			tasks:   []string{"a", "b"}, pipelines: []string{"b", "a"},
		},
		"the gate alone means the object's own namespace": {
			patch: `[{"op":"add","path":"/spec/featureGates","value":{"deployTektonTaskResources":true}}]`,
			tasks: []string{own}, pipelines: []string{own},
		},
		"the gate is closed": {
			sources: hcov1.WorkloadSources{TektonNamespaces: []string{"a"}},
			patch:   `[{"op":"replace","path":"/spec/featureGates/deployTektonTaskResources","value":false}]`,
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			hco := &hcov1.HyperConverged{Spec: hcov1.HyperConvergedSpec{WorkloadSources: c.sources}}
			if c.patch != "" {
				hco.Annotations = map[string]string{hcov1.AnnotationSSPPatch: c.patch}
			}
			objects, err := operands(hco, testOptions().Values())
			if err != nil {
				t.Fatal(err)
			}
			spec, err := settings(objects[2])
			if err != nil {
				t.Fatal(err)
			}
			if got := namespacesOf(spec, "tasks", own); !slices.Equal(got, c.tasks) {
				t.Errorf("tasks: got %v, want %v", got, c.tasks)
			}
			if got := namespacesOf(spec, bundlePipelines, own); !slices.Equal(got, c.pipelines) {
				t.Errorf("pipelines: got %v, want %v", got, c.pipelines)
			}
		})
	}
}

func TestPatchOfSSPThatNothingActsOnIsRefused(t *testing.T) {
	for patch, want := range map[string]string{
		`[{"op":"add","path":"/spec/commonTemplates","value":{"namespace":"x"}}]`: "/spec/commonTemplates/namespace",
		`[{"op":"add","path":"/spec/tektonTasks","value":{"namespace":7}}]`:       "sets what SSP cannot hold",
	} {
		hco := theOne()
		hco.Annotations = map[string]string{hcov1.AnnotationSSPPatch: patch}
		if err := validate(hco, testOptions()); err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), hcov1.AnnotationSSPPatch) {
			t.Errorf("%s: got %v, want an error with %q and the annotation's name", patch, err, want)
		}
	}
}

func theOne() *hcov1.HyperConverged {
	hco := &hcov1.HyperConverged{}
	hco.Name, hco.Namespace = "kubevirt-hyperconverged", "kubevirt-hyperconverged"
	return hco
}

// The SSP object tells of tasks and pipelines, whatever the components do.
func TestStatusOfSSP(t *testing.T) {
	failed := errors.New("applying components: Task x: refused")
	cases := map[string]struct {
		scope                            scope
		available, progressing, degraded bool
		phase, reason                    string
	}{
		"all is there, while a component is not": {
			scope: scope{bundled: true, workloads: waitingParts}, available: true, phase: "Deployed", reason: ReasonCompleted,
		},
		"all is there, and a component could not be applied": {
			scope: scope{bundled: true, err: errors.New("applying components: Deployment y")}, available: true, phase: "Deployed", reason: ReasonCompleted,
		},
		"a namespace is missing": {
			scope: scope{bundled: true, waiting: []string{"namespace x"}}, progressing: true, phase: "Deploying", reason: ReasonWaiting,
		},
		"a task could not be applied": {scope: scope{err: failed}, degraded: true, phase: "Deploying", reason: ReasonFailed},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			c.scope.ssp = &sspv1beta3.SSP{ObjectMeta: metav1.ObjectMeta{Generation: 4}}
			status := sspStatus(&c.scope, "v1", metav1.NewTime(time.Unix(1000, 0)))
			want := map[conditionsv1.ConditionType]bool{"Available": c.available, "Progressing": c.progressing, "Degraded": c.degraded}
			for _, got := range status.Conditions {
				if string(got.Status) != string(asStatus(want[got.Type])) || got.Message == "" || got.Type == "Available" && got.Reason != c.reason {
					t.Errorf("%s: got %s, reason %s, message %q", got.Type, got.Status, got.Reason, got.Message)
				}
				delete(want, got.Type)
			}
			if len(want) > 0 || string(status.Phase) != c.phase || status.ObservedGeneration != 4 || status.OperatorVersion != "v1" {
				t.Errorf("status is %+v", status)
			}
			if (status.ObservedVersion == "v1") != c.available {
				t.Errorf("observed version is %q", status.ObservedVersion)
			}
		})
	}
}

func TestPausedSSPKeepsItsConditions(t *testing.T) {
	ssp := &sspv1beta3.SSP{ObjectMeta: metav1.ObjectMeta{Generation: 4}}
	ssp.Status = sspStatus(&scope{ssp: ssp, bundled: true}, "v1", metav1.Now())
	status := sspStatus(&scope{ssp: ssp, paused: true, err: errors.New("x")}, "v2", metav1.Now())
	if !status.Paused || status.ObservedVersion != "v1" || status.Phase != "Deployed" || len(status.Conditions) != 3 {
		t.Errorf("status is %+v", status)
	}
}
