//go:build integration

package remote_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	tektonv1 "github.com/tektoncd/pipeline/pkg/apis/pipeline/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	virtv1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	cleanupvm "github.com/slipway-vm/slipway/tasks/cleanup-vm"
	"github.com/slipway-vm/slipway/tasks/declare"
	"github.com/slipway-vm/slipway/tasks/declare/rehearsal"
	executeinvm "github.com/slipway-vm/slipway/tasks/execute-in-vm"
	"github.com/slipway-vm/slipway/tests/fixture"
)

const crds = "../../controllers/hyperconverged/components/crds"

// world is a namespace with a VM, a guest behind it and the Secret to log in to it.
type world struct {
	*rehearsal.Stage
	guest *guest
	ns    string
}

var execute, cleanup = executeinvm.Task(), cleanupvm.Task()

func TestTasks(t *testing.T) {
	stage := rehearsal.Open(t, crds)
	for name, test := range map[string]func(t *testing.T, s *rehearsal.Stage){
		"execute-in-vm passes words, output and exit codes":             executes,
		"each wait says at its end what it waited for":                  saysWhatItWaitsFor,
		"the TaskRun's own timeout bounds the wait":                     boundByTaskRun,
		"wrong parameters and Secrets are refused in the field's words": refuses,
		"cleanup-vm cleans up whatever its command does":                cleansUp,
		"a task whose pod is killed goes on where it was":               survivesKills,
	} {
		t.Run(name, func(t *testing.T) { test(t, stage) })
	}
}

// newWorld makes a world; the VM is as options say, Halted by default.
func newWorld(t *testing.T, s *rehearsal.Stage, stuck func(*virtv1.VirtualMachine) bool, options ...fixture.VMOption) *world {
	t.Helper()
	w := &world{Stage: s, guest: startGuest(t), ns: s.Namespace(t, execute, cleanup)}
	operate(t, s.Client, w.ns, stuck)
	w.secret(t, "login", map[string]string{"host-public-key": w.guest.hostKey})
	vm := fixture.VM(w.ns, "vm", append([]fixture.VMOption{fixture.Strategy(virtv1.RunStrategyHalted)}, options...)...)
	if err := s.Client.Create(t.Context(), vm); err != nil {
		t.Fatal(err)
	}
	return w
}

// secret makes a connection Secret; an empty value leaves the key out.
func (w *world) secret(t *testing.T, name string, changes map[string]string) {
	t.Helper()
	secret := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.ns, Name: name},
		StringData: map[string]string{"type": "ssh", "user": "root", "ssh-privatekey": w.guest.clientKey, "additional-ssh-options": fmt.Sprintf("-p %d", w.guest.port)},
	}
	for key, value := range changes {
		secret.StringData[key] = value
		if value == "" {
			delete(secret.StringData, key)
		}
	}
	if secret.StringData["type"] == "" {
		secret.Type = corev1.SecretTypeSSHAuth
	}
	if err := w.Client.Create(t.Context(), secret); err != nil {
		t.Fatal(err)
	}
}

// run runs a task on the VM.
func (w *world) run(t *testing.T, task *declare.Task, params map[string]any) rehearsal.Outcome {
	t.Helper()
	return w.Run(t, w.taskRun(task, params))
}

func (w *world) taskRun(task *declare.Task, params map[string]any) rehearsal.Run {
	all := map[string]any{"vmName": "vm", "secretName": "login"}
	maps.Copy(all, params)
	return rehearsal.Run{Task: task, Namespace: w.ns, Name: "run", UID: "uid-of-run", Params: all}
}

func ended(t *testing.T, o rehearsal.Outcome, code int, said ...string) {
	t.Helper()
	if o.Code != code {
		t.Fatalf("the task ended with %d, want %d: %v\n%s", o.Code, code, o.Err, o.Log)
	}
	for _, words := range said {
		if o.Err == nil || !strings.Contains(o.Err.Error(), words) {
			t.Fatalf("the task said %v, want %q", o.Err, words)
		}
	}
}

func results(t *testing.T, o rehearsal.Outcome, code, stdout string) {
	t.Helper()
	if o.Results["exitCode"] != code || o.Results["stdout"] != stdout {
		t.Fatalf("results are %q", o.Results)
	}
}

func executes(t *testing.T, s *rehearsal.Stage) {
	w := newWorld(t, s, nil)
	words := []string{"a b", "$HOME", "*", "it's", "", "--flag", `"q"`, "x\ny", `params."args"`}
	o := w.run(t, execute, map[string]any{"command": []string{"printf", "<%s>"}, "args": words})
	ended(t, o, 0)
	results(t, o, "0", "<"+strings.Join(words, "><")+">")

	o = w.run(t, execute, map[string]any{"script": "echo out; echo err >&2\nexit 3"})
	ended(t, o, 3, "the command in VirtualMachine "+w.ns+"/vm ended with exit code 3")
	results(t, o, "3", "out")
	if !strings.Contains(o.Out, "out\n") || !strings.Contains(o.Out, "err\n") {
		t.Errorf("the task printed %q", o.Out)
	}

	o = w.run(t, execute, map[string]any{"script": "head -c 100000 /dev/zero | tr '\\0' x; echo end"})
	ended(t, o, 0)
	if out := o.Results["stdout"]; len(out) > 2048 || !strings.HasSuffix(out, "xend") || len(o.Out) < 100000 {
		t.Errorf("the result has %d bytes, the log %d", len(out), len(o.Out))
	}

	w.secret(t, "ssh-auth", map[string]string{"type": "", "disable-strict-host-key-checking": "true"})
	ended(t, w.run(t, execute, map[string]any{"secretName": "ssh-auth", "command": []string{"true"}}), 0)

	other, _ := newKey(t)
	w.secret(t, "wrong-host", map[string]string{"host-public-key": string(marshal(other))})
	ended(t, w.run(t, execute, map[string]any{"secretName": "wrong-host", "command": []string{"true"}}), 253, "REMOTE HOST IDENTIFICATION HAS CHANGED: the VM's host key is not the one in host-public-key")

	ended(t, w.run(t, execute, map[string]any{"vmName": "non-existent", "command": []string{"true"}}), 253, `virtualmachine.kubevirt.io "non-existent" not found`)

	manual := fixture.VM(w.ns, "manual", fixture.Strategy(virtv1.RunStrategyManual))
	old := fixture.VM(w.ns, "old", func(vm *virtv1.VirtualMachine) { vm.Spec.RunStrategy, vm.Spec.Running = nil, new(false) })
	for _, vm := range []*virtv1.VirtualMachine{manual, old} {
		if err := s.Client.Create(t.Context(), vm); err != nil {
			t.Fatal(err)
		}
	}
	ended(t, w.run(t, execute, map[string]any{"vmName": "manual", "command": []string{"true"}}), 253, "with runStrategy Manual it does not start again by itself: start it first")
	ended(t, w.run(t, execute, map[string]any{"vmName": "old", "command": []string{"true"}}), 0)
	if err := s.Client.Get(t.Context(), client.ObjectKeyFromObject(old), old); err != nil || old.Spec.Running == nil || !*old.Spec.Running || old.Spec.RunStrategy != nil {
		t.Errorf("a VM with running has %v and %v, %v", old.Spec.Running, old.Spec.RunStrategy, err)
	}
}

// timesOut runs the task with timeouts that grow until it has come as far as to say what is wanted.
func (w *world) timesOut(t *testing.T, task *declare.Task, params map[string]any, code int, want ...string) rehearsal.Outcome {
	t.Helper()
	run := func(timeout string) rehearsal.Outcome {
		params["timeout"] = timeout
		return w.run(t, task, params)
	}
	o := rehearsal.Growing(run, func(o rehearsal.Outcome) bool { return o.Code == code && o.Said(want...) })
	ended(t, o, code, want...)
	return o
}

func saysWhatItWaitsFor(t *testing.T, s *rehearsal.Stage) {
	all := func(*virtv1.VirtualMachine) bool { return true }
	timeout := "timed out waiting for the condition: waited for "
	w := newWorld(t, s, all)
	params := map[string]any{"command": []string{"true"}}
	w.timesOut(t, execute, params, 253, "command timed out", timeout+"that there is a VirtualMachineInstance")

	vmi := &virtv1.VirtualMachineInstance{ObjectMeta: metav1.ObjectMeta{Namespace: w.ns, Name: "vm"}}
	vmi.Spec = fixture.VM(w.ns, "vm").Spec.Template.Spec
	vmi.Status.Phase = virtv1.Scheduling
	vmi.Status.Conditions = []virtv1.VirtualMachineInstanceCondition{{Type: "PodScheduled", Status: "False", Reason: "Unschedulable", Message: "no node is free"}}
	if err := s.Client.Create(t.Context(), vmi); err != nil {
		t.Fatal(err)
	}
	w.timesOut(t, execute, params, 253, "command timed out", timeout+"its VirtualMachineInstance to run; it is in phase Scheduling", "no node is free")

	vmi.Status.Phase = virtv1.Running
	if err := s.Client.Update(t.Context(), vmi); err != nil {
		t.Fatal(err)
	}
	w.timesOut(t, execute, params, 253, "command timed out", timeout+"an address of its VirtualMachineInstance on the pod network")

	w = newWorld(t, s, nil)
	w.secret(t, "closed", map[string]string{"disable-strict-host-key-checking": "true", "additional-ssh-options": "-p 1"})
	params["secretName"] = "closed"
	w.timesOut(t, execute, params, 253, "command timed out", timeout+"the SSH server at 127.0.0.1:1", "refused")

	_, stranger := newKey(t)
	w.secret(t, "stranger", map[string]string{"disable-strict-host-key-checking": "true", "ssh-privatekey": stranger})
	params["secretName"] = "stranger"
	w.timesOut(t, execute, params, 253, "command timed out", timeout+"the login as root at 127.0.0.1")

	o := w.timesOut(t, execute, map[string]any{"script": "echo begun; sleep 300"}, 253, "command timed out", "was still running after ")
	results(t, o, "", "begun")
}

func boundByTaskRun(t *testing.T, s *rehearsal.Stage) {
	w := newWorld(t, s, nil)
	run := &tektonv1.TaskRun{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.ns, Name: "run"},
		Spec:       tektonv1.TaskRunSpec{Timeout: &metav1.Duration{Duration: 4 * time.Second}},
	}
	run.Status.StartTime = &metav1.Time{Time: time.Now()}
	if err := s.Client.Create(t.Context(), run); err != nil {
		t.Fatal(err)
	}
	// Whether it waits for the VM or for the script then is a matter of how busy the machine is.
	ended(t, w.run(t, execute, map[string]any{"script": "sleep 300"}), 253, "command timed out")
}

func refuses(t *testing.T, s *rehearsal.Stage) {
	w := newWorld(t, s, nil)
	w.secret(t, "no-user", map[string]string{"user": "", "host-public-key": "x"})
	w.secret(t, "no-host-key", nil)
	w.secret(t, "winrm", map[string]string{"type": "winrm"})
	type params = map[string]any
	none := "no action was specified: at least one of the following options is required: command|script|stop|delete"
	for name, c := range map[string]struct {
		tasks  []*declare.Task
		params params
		code   int
		said   string
	}{
		"no name":                    {nil, params{"vmName": "", "script": "x"}, 255, "missing value for vm-name option"},
		"a bad name":                 {nil, params{"vmName": "No_Name", "script": "x"}, 255, "vm-name is not a valid name: a lowercase RFC 1123 subdomain must consist of"},
		"both":                       {nil, params{"script": "x", "command": []string{"x"}}, 255, "only one of command|script options is allowed"},
		"no action":                  {[]*declare.Task{execute}, params{}, 255, none},
		"args alone":                 {[]*declare.Task{execute}, params{"args": []string{"x"}}, 255, none},
		"args with script":           {nil, params{"script": "x", "args": []string{"x"}}, 255, "only one of command-args|script options is allowed"},
		"nothing to do":              {[]*declare.Task{cleanup}, params{"stop": "false"}, 255, none},
		"stop is no bool":            {[]*declare.Task{cleanup}, params{"stop": "yes"}, 255, `stop: "yes" is neither "true" nor "false"`},
		"delete is no bool":          {[]*declare.Task{cleanup}, params{"delete": "1"}, 255, `delete: "1" is neither`},
		"a bad timeout":              {nil, params{"script": "x", "timeout": "soon"}, 255, `timeout: "soon" is no duration above zero`},
		"no Secret":                  {nil, params{"script": "x", "secretName": "__empty__"}, 254, "connection secret should not be empty"},
		"a Secret that is not there": {nil, params{"script": "x", "secretName": "none"}, 254, "type secret attribute is required"},
		"no user":                    {nil, params{"script": "x", "secretName": "no-user"}, 254, "user secret attribute is required"},
		"no host key":                {nil, params{"script": "x", "secretName": "no-host-key"}, 254, "host-public-key or disable-strict-host-key-checking=true secret attribute is required"},
		"another type":               {nil, params{"script": "x", "secretName": "winrm"}, 254, "winrm is invalid type"},
	} {
		if c.tasks == nil {
			c.tasks = []*declare.Task{execute, cleanup}
		}
		for _, task := range c.tasks {
			t.Run(name+" for "+task.Name, func(t *testing.T) { ended(t, w.run(t, task, c.params), c.code, c.said) })
		}
	}
	if ran := w.guest.commands(); len(ran) > 0 {
		t.Errorf("the guest ran %q", ran)
	}
}

// left says what is left of the VM: "nothing", "halted" or "running".
func (w *world) left(t *testing.T) string {
	t.Helper()
	key := client.ObjectKey{Namespace: w.ns, Name: "vm"}
	var vm virtv1.VirtualMachine
	err := w.Client.Get(t.Context(), key, &vm)
	if apierrors.IsNotFound(err) {
		return "nothing"
	}
	if err != nil {
		t.Fatal(err)
	}
	strategy, err := vm.RunStrategy()
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Client.Get(t.Context(), key, &virtv1.VirtualMachineInstance{}); strategy == virtv1.RunStrategyHalted && apierrors.IsNotFound(err) {
		return "halted"
	}
	return "running"
}

func cleansUp(t *testing.T, s *rehearsal.Stage) {
	running := fixture.Strategy(virtv1.RunStrategyAlways)
	for name, c := range map[string]struct {
		params map[string]any
		code   int
		said   []string
		left   string
	}{
		"stops":                      {map[string]any{}, 0, nil, "halted"},
		"deletes":                    {map[string]any{"delete": "true"}, 0, nil, "nothing"},
		"stops after a command":      {map[string]any{"script": "echo bye"}, 0, nil, "halted"},
		"deletes after a failure":    {map[string]any{"script": "exit 7", "delete": "true"}, 7, []string{"ended with exit code 7"}, "nothing"},
		"deletes without its Secret": {map[string]any{"script": "true", "secretName": "none", "delete": "true"}, 254, []string{"type secret attribute is required"}, "nothing"},
		"leaves it running":          {map[string]any{"script": "true", "stop": "false"}, 0, nil, "running"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, s, nil, running)
			ended(t, w.run(t, cleanup, c.params), c.code, c.said...)
			if left := w.left(t); left != c.left {
				t.Errorf("%s is left, want %s", left, c.left)
			}
		})
	}
	t.Run("stops after a timeout", func(t *testing.T) {
		w := newWorld(t, s, nil, running)
		run := func(timeout string) rehearsal.Outcome {
			return w.run(t, cleanup, map[string]any{"script": "sleep 300", "timeout": timeout})
		}
		// The timeout is the stop's, too, which a busy machine may need longer for.
		o := rehearsal.Growing(run, func(o rehearsal.Outcome) bool { return o.Said("was still running") && w.left(t) == "halted" })
		ended(t, o, 253, "command timed out")
		if left := w.left(t); left != "halted" {
			t.Errorf("%s is left, want halted", left)
		}
	})
	t.Run("ends when the VM does not", func(t *testing.T) {
		ends := func(vm *virtv1.VirtualMachine) bool {
			strategy, _ := vm.RunStrategy()
			return strategy == virtv1.RunStrategyHalted || vm.DeletionTimestamp != nil
		}
		w := newWorld(t, s, ends, running)
		vmi := &virtv1.VirtualMachineInstance{ObjectMeta: metav1.ObjectMeta{Namespace: w.ns, Name: "vm"}}
		s.Eventually(t, "the VM runs", vmi, func() bool { return vmi.Status.Phase == virtv1.Running })
		w.timesOut(t, cleanup, map[string]any{}, 253, "timed out waiting for the condition", "is still there")
		w.timesOut(t, cleanup, map[string]any{"script": "exit 4", "delete": "true"}, 4, "exit code 4", "timed out waiting for the condition", "is still there")
	})
	t.Run("is quick about a VM that is gone", func(t *testing.T) {
		w := newWorld(t, s, nil)
		ended(t, w.run(t, cleanup, map[string]any{"vmName": "non-existent"}), 253, `virtualmachine.kubevirt.io "non-existent" not found`)
		ended(t, w.run(t, cleanup, map[string]any{"vmName": "non-existent", "delete": "true"}), 0)
	})
}

func survivesKills(t *testing.T, s *rehearsal.Stage) {
	var w *world
	fresh := func(task *declare.Task, params map[string]any) func(*testing.T) rehearsal.Run {
		return func(t *testing.T) rehearsal.Run {
			w = newWorld(t, s, nil)
			return w.taskRun(task, params)
		}
	}
	s.Killed(t, fresh(execute, map[string]any{"script": "echo here"}), func(t *testing.T, _ rehearsal.Run, o rehearsal.Outcome) {
		ended(t, o, 0)
		results(t, o, "0", "here")
		if ran := w.guest.commands(); len(ran) != 1 {
			t.Errorf("the guest ran %q", ran)
		}
	})
	for _, remove := range []string{"false", "true"} {
		left := map[string]string{"false": "halted", "true": "nothing"}[remove]
		s.Killed(t, fresh(cleanup, map[string]any{"script": "exit 5", "delete": remove}), func(t *testing.T, run rehearsal.Run, o rehearsal.Outcome) {
			// The writes: the VM is started, the end of the command is marked, the VM is stopped or deleted.
			most := 1
			if run.Kill == 2 && !run.Lost {
				most = 2 // the command came to its end, but nobody could say so
			}
			if remove == "true" && run.Kill == 3 && run.Lost && o.Code == 0 {
				o.Code = 5 // the VM is gone, and with it the mark: the retry finds nothing left to do
			}
			ended(t, o, 5)
			if ran := w.guest.commands(); len(ran) == 0 || len(ran) > most || slices.Contains(ran, "") {
				t.Errorf("the guest ran %q", ran)
			}
			if got := w.left(t); got != left {
				t.Errorf("%s is left, want %s", got, left)
			}
		})
	}
}
