package rehearsal

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	tektonv1 "github.com/tektoncd/pipeline/pkg/apis/pipeline/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-vm/slipway/internal/scheme"
	"github.com/slipway-vm/slipway/tasks/declare"
)

// boundRun is how long a task of a test may take on a busy machine.
const boundRun = 5 * time.Minute

// maxWrites is more than any task writes to the API.
const maxWrites = 20

// Run is one TaskRun of a task, or a try of one.
type Run struct {
	Task      *declare.Task
	Namespace string
	// Name and UID are the TaskRun's; a retry has the same.
	Name, UID string
	// Retry is the number of tries before this one.
	Retry int
	// Params are strings and lists of strings; what is left out has its default.
	Params map[string]any
	// Kill is the number of the write to the API, from 1, at which the pod is killed; 0 for never.
	// Lost says that this write still reaches the API server, but not its answer the task.
	Kill int
	Lost bool
	// Forbidden says that the task may be forbidden something in this run; NoResults that its
	// results cannot be written.
	Forbidden, NoResults bool
	// Watching is called once, when the task watches something for the first time.
	Watching func()
}

// Outcome is how a run ended.
type Outcome struct {
	// Code is the exit code of the process, Err its error.
	Code int
	Err  error
	// Killed says that the pod was killed.
	Killed bool
	// Out is what the task printed for its user, Log what it logged.
	Out, Log string
	Results  map[string]string
}

// Run runs the task and waits for its end.
func (s *Stage) Run(t *testing.T, run Run) Outcome {
	t.Helper()
	ctx, stop := context.WithTimeoutCause(t.Context(), boundRun, errors.New("the test's bound is over"))
	defer stop()
	// A client's transport outlives the run in its cache only by idle connections.
	config := rest.CopyConfig(s.config)
	config.Impersonate = rest.ImpersonationConfig{UserName: user(run.Task, run.Namespace), Groups: []string{"system:serviceaccounts", "system:authenticated"}}
	line := &wire{calls: s.of(run.Task), kill: run.Kill - 1, lost: run.Lost, stop: stop, watching: run.Watching}
	config.Wrap(func(base http.RoundTripper) http.RoundTripper { line.base = base; return line })
	results := t.TempDir()
	env, args := s.step(t, run, results)
	if run.NoResults {
		env["TASK_RESULTS_DIR"] = filepath.Join(results, "none")
	}
	var out, log syncBuffer
	err := run.Task.Execute(ctx, declare.Environment{
		Args: args, Out: &out, Log: declare.NewLog(&log),
		LookupEnv: func(name string) (string, bool) { value, ok := env[name]; return value, ok },
		Connect: func() (client.WithWatch, error) {
			return client.NewWithWatch(config, client.Options{Scheme: scheme.New()})
		},
	})
	line.background.Wait() // what the test did meanwhile ends before its test does
	if len(line.forbidden) > 0 && !run.Forbidden {
		t.Errorf("task %s was forbidden: %s", run.Task.Name, strings.Join(line.forbidden, ", "))
	}
	o := Outcome{Err: err, Killed: line.dead, Out: out.String(), Log: log.String(), Results: readResults(t, results)}
	var exit *declare.Exit
	switch {
	case errors.As(err, &exit):
		o.Code = exit.ExitCode()
	case err != nil:
		o.Code = 1
	}
	return o
}

// Growing calls run with timeouts that double until it comes as far as enough says: a busy machine may need long for what
// goes before. The last outcome is returned, whatever it is.
func Growing(run func(timeout string) Outcome, enough func(o Outcome) bool) Outcome {
	for timeout := 2 * time.Second; ; timeout *= 2 {
		if o := run(timeout.String()); timeout > time.Minute || enough(o) {
			return o
		}
	}
}

// Said says whether the run ended with an error that has all the words.
func (o Outcome) Said(words ...string) bool {
	return !slices.ContainsFunc(words, func(word string) bool { return o.Err == nil || !strings.Contains(o.Err.Error(), word) })
}

// Killed runs the task again and again: with its pod killed at its first write, then once more to
// the end; then killed at the second write; and so on until no write is left to be killed at. Each
// time before begins with a fresh namespace, and after looks at what the second try left.
func (s *Stage) Killed(t *testing.T, fresh func(t *testing.T) Run, after func(t *testing.T, run Run, o Outcome)) {
	t.Helper()
	for _, lost := range []bool{false, true} {
		for kill := 1; kill <= maxWrites; kill++ {
			name := fmt.Sprintf("before write %d", kill)
			if lost {
				name = fmt.Sprintf("after write %d", kill)
			}
			killed := false
			t.Run(name, func(t *testing.T) {
				run := fresh(t)
				run.Kill, run.Lost = kill, lost
				o := s.Run(t, run)
				if killed = o.Killed; killed {
					again := run
					again.Kill, again.Retry = 0, 1
					o = s.Run(t, again)
				}
				after(t, run, o)
			})
			if !killed {
				break
			}
		}
	}
}

// step returns the environment and the arguments of the generated step, with Tekton's variables replaced.
func (s *Stage) step(t *testing.T, run Run, results string) (env map[string]string, args []string) {
	t.Helper()
	task, ok := run.Task.Manifests()[0].(*tektonv1.Task)
	if !ok {
		t.Fatalf("task %s has no Tekton Task", run.Task.Name)
	}
	values, arrays := run.values(t, task)
	variables := []string{"$(context.taskRun.namespace)", run.Namespace, "$(context.taskRun.name)", run.Name, "$(context.taskRun.uid)", run.UID, "$(context.task.retry-count)", strconv.Itoa(run.Retry)}
	for name, value := range values {
		variables = append(variables, "$(params."+name+")", value)
	}
	replacer := strings.NewReplacer(variables...)
	env = map[string]string{}
	for _, e := range task.Spec.Steps[0].Env {
		env[e.Name] = replacer.Replace(e.Value)
	}
	env["TASK_RESULTS_DIR"] = results
	if run.Task.Secret != nil {
		env["TASK_SECRET_DIR"] = s.mount(t, run.Namespace, values[run.Task.Secret.Param])
	}
	for _, arg := range task.Spec.Steps[0].Args {
		if name, isArray := strings.CutPrefix(arg, "$(params."); isArray && strings.HasSuffix(name, "[*])") {
			args = append(args, arrays[strings.TrimSuffix(name, "[*])")]...)
			continue
		}
		args = append(args, replacer.Replace(arg))
	}
	return env, args
}

// values are the parameters' values, or their defaults, as Tekton finds them.
func (r Run) values(t *testing.T, task *tektonv1.Task) (values map[string]string, arrays map[string][]string) {
	t.Helper()
	values, arrays = map[string]string{}, map[string][]string{}
	for _, p := range task.Spec.Params {
		given, isGiven := r.Params[p.Name]
		switch {
		case !isGiven && p.Default == nil:
			t.Fatalf("task %s: Tekton refuses a run without parameter %s", task.Name, p.Name)
		case p.Type == tektonv1.ParamTypeArray && isGiven:
			arrays[p.Name] = given.([]string)
		case p.Type == tektonv1.ParamTypeArray:
			arrays[p.Name] = p.Default.ArrayVal
		case isGiven:
			values[p.Name] = given.(string)
		default:
			values[p.Name] = p.Default.StringVal
		}
	}
	return values, arrays
}

// mount writes the keys of a Secret as the kubelet does for an optional one.
func (s *Stage) mount(t *testing.T, namespace, name string) string {
	t.Helper()
	dir := t.TempDir()
	var secret corev1.Secret
	if err := s.Client.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: name}, &secret); err != nil {
		return dir
	}
	for key, value := range secret.Data {
		if err := os.WriteFile(filepath.Join(dir, key), value, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func readResults(t *testing.T, dir string) map[string]string {
	t.Helper()
	results := map[string]string{}
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, entry := range entries {
		data, err := os.ReadFile(filepath.Join(dir, entry.Name()))
		if err != nil {
			t.Fatal(err)
		}
		results[entry.Name()] = string(data)
	}
	return results
}

// syncBuffer is a buffer that several goroutines may write.
type syncBuffer struct {
	mu     sync.Mutex
	buffer bytes.Buffer
}

func (b *syncBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buffer.Write(p) //nolint:wrapcheck // a buffer takes all
}

func (b *syncBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buffer.String()
}
