//go:build integration

package waitforvmistatus_test

import (
	"maps"
	"strings"
	"testing"
	"time"

	tektonv1 "github.com/tektoncd/pipeline/pkg/apis/pipeline/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	virtv1 "kubevirt.io/api/core/v1"

	"github.com/slipway-vm/slipway/tasks/declare/rehearsal"
	waitforvmistatus "github.com/slipway-vm/slipway/tasks/wait-for-vmi-status"
	"github.com/slipway-vm/slipway/tests/fixture"
)

// world is a namespace with a VM and its instance, whose controllers the test plays.
type world struct {
	*rehearsal.Stage
	ns  string
	vm  *virtv1.VirtualMachine
	vmi *virtv1.VirtualMachineInstance
}

var task = waitforvmistatus.Task()

func TestTask(t *testing.T) {
	stage := rehearsal.Open(t, "../../controllers/hyperconverged/components/crds")
	for name, test := range map[string]func(t *testing.T, w *world){
		"it ends when the success condition holds": func(t *testing.T, w *world) {
			w.create(t, virtv1.Scheduling)
			o := w.meanwhile(t, map[string]any{"successCondition": "status.phase == Running"}, func() { w.phase(t, virtv1.Running) })
			ended(t, o, 0, "")
		},
		"success is looked at first": func(t *testing.T, w *world) {
			w.create(t, virtv1.Failed)
			ended(t, w.run(t, map[string]any{"successCondition": "status.phase == Failed", "failureCondition": "status.phase == Failed"}), 0, "")
		},
		"the failure condition is exit code 2": func(t *testing.T, w *world) {
			w.create(t, virtv1.Running)
			params := map[string]any{"successCondition": "status.phase == Succeeded", "failureCondition": `cel:status.phase in ["Failed"]`}
			o := w.meanwhile(t, params, func() { w.phase(t, virtv1.Failed) })
			ended(t, o, 2, "failure condition \"cel:status.phase in [\\\"Failed\\\"]\" was met")
		},
		"without conditions it ends at once": func(t *testing.T, w *world) { ended(t, w.run(t, nil), 0, "") },
		"it waits for an instance that does not exist yet": func(t *testing.T, w *world) {
			o := w.meanwhile(t, map[string]any{"successCondition": `jsonpath:{.status.conditions[?(@.type=="Ready")].status}==True`}, func() {
				w.vmi.Status.Conditions = []virtv1.VirtualMachineInstanceCondition{{Type: "Ready", Status: "True"}}
				w.create(t, virtv1.Running)
			})
			ended(t, o, 0, "")
		},
		"the timeout says what was seen last": func(t *testing.T, w *world) {
			w.timesOut(t, "timed out waiting for the condition: VirtualMachineInstance "+w.ns+"/vm was last seen nowhere")
			w.create(t, virtv1.Scheduling)
			w.timesOut(t, "was last seen in phase Scheduling")
		},
		"the TaskRun's own timeout bounds the wait": func(t *testing.T, w *world) {
			run := &tektonv1.TaskRun{
				ObjectMeta: metav1.ObjectMeta{Namespace: w.ns, Name: "run"},
				Spec:       tektonv1.TaskRunSpec{Timeout: &metav1.Duration{Duration: 2 * time.Second}},
			}
			run.Status.StartTime = &metav1.Time{Time: time.Now()}
			if err := w.Client.Create(t.Context(), run); err != nil {
				t.Fatal(err)
			}
			ended(t, w.run(t, map[string]any{"successCondition": "status.phase == Running"}), 3, "timed out waiting")
		},
		"an instance of nobody that is deleted ends the wait": func(t *testing.T, w *world) {
			w.vmi.OwnerReferences = nil
			w.create(t, virtv1.Running)
			o := w.meanwhile(t, map[string]any{"successCondition": "status.phase == Succeeded"}, func() { w.remove(t) })
			ended(t, o, 2, "was deleted; it was last seen in phase Running")
		},
		"an instance of a halted VM that is deleted ends the wait": func(t *testing.T, w *world) {
			w.create(t, virtv1.Running)
			o := w.meanwhile(t, map[string]any{"successCondition": "status.phase == Succeeded"}, func() {
				w.vm.Spec.RunStrategy = new(virtv1.RunStrategyHalted)
				if err := w.Client.Update(t.Context(), w.vm); err != nil {
					t.Error(err)
				}
				w.remove(t)
			})
			ended(t, o, 2, "was deleted")
		},
		"an instance of a VM that runs once ends the wait when it is deleted": func(t *testing.T, w *world) {
			w.strategy(t, virtv1.RunStrategyOnce)
			w.create(t, virtv1.Running)
			o := w.meanwhile(t, map[string]any{"successCondition": "status.phase == Succeeded"}, func() { w.remove(t) })
			ended(t, o, 2, "was deleted; it was last seen in phase Running")
		},
		"an instance that failed and is run again does not": func(t *testing.T, w *world) {
			w.strategy(t, virtv1.RunStrategyRerunOnFailure)
			w.create(t, virtv1.Failed)
			o := w.meanwhile(t, map[string]any{"successCondition": "status.phase == Succeeded"}, func() {
				w.remove(t)
				w.vmi.ResourceVersion, w.vmi.UID = "", ""
				w.create(t, virtv1.Succeeded)
			})
			ended(t, o, 0, "")
		},
		"an instance of a deleted VM that is deleted ends the wait": func(t *testing.T, w *world) {
			w.create(t, virtv1.Running)
			o := w.meanwhile(t, map[string]any{"successCondition": "status.phase == Succeeded"}, func() {
				if err := w.Client.Delete(t.Context(), w.vm); err != nil {
					t.Error(err)
				}
				w.remove(t)
			})
			ended(t, o, 2, "was deleted")
		},
		"a restart does not end the wait": func(t *testing.T, w *world) {
			w.create(t, virtv1.Running)
			o := w.meanwhile(t, map[string]any{"successCondition": "status.phase == Succeeded"}, func() {
				w.remove(t)
				w.vmi.ResourceVersion, w.vmi.UID = "", ""
				w.create(t, virtv1.Succeeded)
			})
			ended(t, o, 0, "")
		},
		"wrong parameters are refused in the field's words": refuses,
	} {
		t.Run(name, func(t *testing.T) { test(t, newWorld(t, stage)) })
	}
}

func newWorld(t *testing.T, s *rehearsal.Stage) *world {
	t.Helper()
	w := &world{Stage: s, ns: s.Namespace(t, task)}
	w.vm = fixture.VM(w.ns, "vm")
	if err := s.Client.Create(t.Context(), w.vm); err != nil {
		t.Fatal(err)
	}
	w.vmi = &virtv1.VirtualMachineInstance{ObjectMeta: metav1.ObjectMeta{
		Namespace: w.ns, Name: "vm",
		OwnerReferences: []metav1.OwnerReference{{APIVersion: "kubevirt.io/v1", Kind: "VirtualMachine", Name: "vm", UID: w.vm.UID, Controller: new(true)}},
	}}
	w.vmi.Spec = w.vm.Spec.Template.Spec
	return w
}

// strategy gives the VM another run strategy.
func (w *world) strategy(t *testing.T, to virtv1.VirtualMachineRunStrategy) {
	t.Helper()
	w.vm.Spec.Running, w.vm.Spec.RunStrategy = nil, &to
	if err := w.Client.Update(t.Context(), w.vm); err != nil {
		t.Fatal(err)
	}
}

func (w *world) create(t *testing.T, phase virtv1.VirtualMachineInstancePhase) {
	t.Helper()
	w.vmi.Status.Phase = phase
	if err := w.Client.Create(t.Context(), w.vmi); err != nil {
		t.Error(err)
	}
}

func (w *world) phase(t *testing.T, phase virtv1.VirtualMachineInstancePhase) {
	t.Helper()
	w.vmi.Status.Phase = phase
	if err := w.Client.Update(t.Context(), w.vmi); err != nil {
		t.Error(err)
	}
}

func (w *world) remove(t *testing.T) {
	t.Helper()
	if err := w.Client.Delete(t.Context(), w.vmi); err != nil {
		t.Error(err)
	}
}

func (w *world) run(t *testing.T, params map[string]any) rehearsal.Outcome {
	t.Helper()
	return w.Run(t, w.taskRun(params))
}

func (w *world) taskRun(params map[string]any) rehearsal.Run {
	all := map[string]any{"vmiName": "vm"}
	maps.Copy(all, params)
	return rehearsal.Run{Task: task, Namespace: w.ns, Name: "run", UID: "uid-of-run", Params: all}
}

// timesOut waits for a phase that never comes, with timeouts that grow until the task has come as far as to say what is wanted.
func (w *world) timesOut(t *testing.T, said string) {
	t.Helper()
	run := func(timeout string) rehearsal.Outcome {
		return w.run(t, map[string]any{"successCondition": "status.phase == Running", "timeout": timeout})
	}
	ended(t, rehearsal.Growing(run, func(o rehearsal.Outcome) bool { return o.Code == 3 && o.Said(said) }), 3, said)
}

// meanwhile runs the task, and change once it waits.
func (w *world) meanwhile(t *testing.T, params map[string]any, change func()) rehearsal.Outcome {
	t.Helper()
	run := w.taskRun(params)
	run.Watching = change
	return w.Run(t, run)
}

func ended(t *testing.T, o rehearsal.Outcome, code int, said string) {
	t.Helper()
	if o.Code != code || said != "" && (o.Err == nil || !strings.Contains(o.Err.Error(), said)) {
		t.Fatalf("the task ended with %d, want %d and %q: %v\n%s", o.Code, code, said, o.Err, o.Log)
	}
}

func refuses(t *testing.T, w *world) {
	for said, params := range map[string]map[string]any{
		"vmi-name should not be empty":                                {"vmiName": ""},
		"invalid vmi-name value: a lowercase RFC 1123 subdomain":      {"vmiName": "A_b"},
		"invalid vmi-namespace value: a lowercase RFC 1123 subdomain": {"vmiNamespace": "@ns"},
		"failure-condition: invalid condition: cannot parse jsonpath": {"failureCondition": "test.....test"},
		"success-condition: invalid condition: cannot parse jsonpath": {"successCondition": "test.....test"},
		"success-condition: could not parse condition":                {"successCondition": "a b"},
		"failure-condition: could not parse condition":                {"failureCondition": "status.phase ==== x"},
		`timeout: "soon" is no duration above zero`:                   {"timeout": "soon", "successCondition": "a"},
	} {
		ended(t, w.run(t, params), 255, said)
	}
	w.create(t, virtv1.Running)
	ended(t, w.run(t, map[string]any{"successCondition": "cel:status.phase"}), 255, "it must give true or false")
	ended(t, w.run(t, map[string]any{"vmiName": " vm  ", "vmiNamespace": "  " + w.ns, "successCondition": " status.phase == Running "}), 0, "")
}
