package declare

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Environment is what a task's process was started with.
type Environment struct {
	// Args are the arguments after the task's name.
	Args []string
	// LookupEnv looks up an environment variable, as os.LookupEnv does.
	LookupEnv func(string) (string, bool)
	// Connect makes the API client; it is called only for tasks that declare rules.
	Connect func() (client.WithWatch, error)
	Out     io.Writer
	Log     *slog.Logger
}

// Execute reads the parameters from env and runs the task.
func (t *Task) Execute(ctx context.Context, env Environment) error {
	call, err := t.call(env)
	if err != nil {
		return Coded(CodeUsage, err)
	}
	if len(t.Rules) > 0 {
		call.Client, err = env.Connect()
		if err != nil && !t.ClientOptional {
			return Coded(max(t.ClientCode, 1), fmt.Errorf("connecting to the Kubernetes API: %w", err))
		}
		if err != nil {
			call.Client = nil
			env.Log.Warn("going on without the Kubernetes API", "reason", err.Error())
		}
	}
	return t.Run(ctx, call)
}

func (t *Task) call(env Environment) (*Call, error) {
	get := func(name string) string { value, _ := env.LookupEnv(name); return value }
	call := &Call{
		Namespace:  get(envNamespace),
		TaskRunUID: types.UID(get(envTaskRunUID)),
		Disk:       get(envDisk),
		Secret:     get(envSecret),
		Retry:      !slices.Contains([]string{"", "0"}, get(envRetry)),
		Out:        env.Out, Log: env.Log, task: t,
		results: get(envResults),
		strings: map[string]string{}, arrays: map[string][]string{},
	}
	call.TaskRun = types.NamespacedName{Namespace: call.Namespace, Name: get(envTaskRunName)}
	if err := t.readStrings(call, env.LookupEnv); err != nil {
		return nil, err
	}
	return call, t.readArrays(call, env.Args)
}

// readStrings takes the values of the string parameters from the environment.
func (t *Task) readStrings(call *Call, lookup func(string) (string, bool)) error {
	for _, p := range t.Params {
		if p.Array {
			continue
		}
		value, given := lookup(p.Env())
		if !given {
			value = p.Default
		}
		for _, name := range p.Earlier {
			earlier, _ := lookup(Param{Name: name}.Env())
			if earlier == "" {
				continue
			}
			if value != p.Default && value != earlier {
				return fmt.Errorf("parameters %s and %s mean the same and differ; give %s alone", p.Name, name, p.Name)
			}
			value, given = earlier, true
		}
		// Tekton holds a run to its required parameters, but not to one that has two names.
		if p.Required && (!given || value == "" && len(p.Earlier) > 0) {
			return fmt.Errorf("parameter %s is required: set it in the TaskRun (environment variable %s)", p.Name, p.Env())
		}
		call.strings[p.Name] = value
	}
	return nil
}

// readArrays takes the items of the array parameters from args: each array's marker, then its items.
func (t *Task) readArrays(call *Call, args []string) error {
	current := ""
	for _, arg := range args {
		if name, ok := t.markedArray(string(call.TaskRunUID), arg); ok {
			current = name
			continue
		}
		if current == "" {
			return fmt.Errorf("unexpected argument %q", arg)
		}
		call.arrays[current] = append(call.arrays[current], arg)
	}
	for _, p := range t.Params {
		if p.Array {
			if err := mergeEarlier(call.arrays, p); err != nil {
				return err
			}
		}
	}
	return nil
}

// mergeEarlier moves the items that were given under an earlier name to the parameter's own.
func mergeEarlier(arrays map[string][]string, p Param) error {
	for _, name := range p.Earlier {
		items := arrays[name]
		delete(arrays, name)
		if len(items) == 0 {
			continue
		}
		if len(arrays[p.Name]) > 0 && !slices.Equal(arrays[p.Name], items) {
			return fmt.Errorf("parameters %s and %s mean the same and differ; give %s alone", p.Name, name, p.Name)
		}
		arrays[p.Name] = items
	}
	return nil
}

// markedArray returns the array parameter, by its own or an earlier name, that arg is the marker of.
func (t *Task) markedArray(uid, arg string) (string, bool) {
	for _, p := range t.Params {
		if !p.Array {
			continue
		}
		for _, name := range p.names() {
			if arg == marker(uid, name) {
				return name, true
			}
		}
	}
	return "", false
}

// names are the parameter's name and its earlier ones.
func (p Param) names() []string { return append([]string{p.Name}, p.Earlier...) }

// Env is the environment variable that carries the parameter: PARAM_VM_NAME for vmName.
func (p Param) Env() string {
	var b strings.Builder
	b.WriteString("PARAM_")
	previousLower := false
	for _, r := range p.Name {
		upper := r >= 'A' && r <= 'Z'
		if upper && previousLower {
			b.WriteByte('_')
		}
		previousLower = !upper && r != '_'
		b.WriteString(strings.ToUpper(string(r)))
	}
	return strings.ReplaceAll(b.String(), "-", "_")
}

// Find returns the task of that name.
func Find(tasks []*Task, name string) (*Task, error) {
	known := make([]string, len(tasks))
	for i, t := range tasks {
		if t.Name == name {
			return t, nil
		}
		known[i] = t.Name
	}
	return nil, errors.New("no task " + name + "; tasks are " + strings.Join(known, ", "))
}
