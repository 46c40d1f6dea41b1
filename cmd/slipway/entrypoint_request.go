package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-vm/slipway/internal/names"
	"github.com/slipway-vm/slipway/internal/taskdisk"
	"github.com/slipway-vm/slipway/tasks"
	"github.com/slipway-vm/slipway/tasks/declare"
)

// Where a pod of Tekton has what its program is not told.
const (
	resultsFolder = "/tekton/results"
	namespaceFile = "/var/run/secrets/kubernetes.io/serviceaccount/namespace"
	secretFolder  = "/data/connectionsecret"
)

// request is a call of a program of kubevirt-tekton-tasks, as the task that does its work takes it.
type request struct {
	program program
	task    *declare.Task
	// strings and arrays are the task's parameters.
	strings map[string]string
	arrays  map[string][]string
	// run is what Tekton tells our own Tasks by environment variables.
	run map[string]string
	// namespace and pod name the pod that this program runs in.
	namespace, pod string
}

// read makes a request of a program's arguments and environment.
func read(name string, args []string, lookup func(string) (string, bool)) (*request, error) {
	r := &request{program: programs()[name], strings: map[string]string{}, arrays: map[string][]string{}}
	wrong := func(err error) error {
		return &declare.Exit{Code: r.program.usage, Err: fmt.Errorf("%s: %w", name, err)}
	}
	if r.program.refused != "" {
		return nil, wrong(errors.New(r.program.refused))
	}
	seen := given{}
	for _, o := range r.program.options {
		if value, ok := lookup(o.env); ok && o.env != "" {
			seen[o.env] = true
			if value != "" || r.strings[o.param] == "" { // of two names by release the one that says something counts
				r.strings[o.param] = value
			}
		}
	}
	if err := r.flags(args, seen); err != nil {
		return nil, wrong(err)
	}
	if err := r.choose(r.program.task(seen)); err != nil {
		return nil, wrong(err)
	}
	return r, r.locate(lookup)
}

// flags reads the arguments as the program does: flags with their values, then other words.
func (r *request) flags(args []string, seen given) error {
	for len(args) > 0 {
		if args[0] == "--" || !isFlag(args[0]) {
			return r.words(args)
		}
		flag, value, inline := strings.Cut(args[0], "=")
		n := slices.IndexFunc(r.program.options, func(o option) bool { return o.flag == flag })
		if n < 0 {
			return fmt.Errorf("unknown argument %s", flag)
		}
		seen[flag] = true
		values := args[1:]
		args = nil
		if end := slices.IndexFunc(values, isFlag); end >= 0 {
			values, args = values[:end], values[end:]
		}
		if inline {
			args, values = append(slices.Clone(values), args...), []string{value}
		}
		left, err := r.take(r.program.options[n], values)
		if err != nil {
			return err
		}
		args = append(slices.Clone(left), args...)
	}
	return nil
}

func isFlag(arg string) bool { return len(arg) > 1 && arg[0] == '-' }

// words takes what is no flag.
func (r *request) words(args []string) error {
	if args[0] == "--" {
		args = args[1:]
	}
	if len(args) == 0 {
		return nil
	}
	if r.program.rest == nil {
		return fmt.Errorf("too many arguments: %q", args)
	}
	r.program.rest(args, r)
	return nil
}

// take gives the option its values and returns those that are not its own.
func (r *request) take(o option, values []string) ([]string, error) {
	switch {
	case o.kind == none:
		return values, nil
	case o.kind == many:
		r.arrays[o.param] = append(r.arrays[o.param], values...)
		return nil, nil
	case len(values) == 0:
		return nil, fmt.Errorf("missing value for %s", o.flag)
	case o.kind == yaml && values[0] != "yaml" && values[0] != "":
		return nil, fmt.Errorf("%s: %q is not supported; objects are printed as yaml", o.flag, values[0])
	case o.kind == one:
		r.strings[o.param] = values[0]
	}
	return values[1:], nil
}

// choose sets the task. A value that it has no parameter for is an error.
func (r *request) choose(name string) error {
	task, err := declare.Find(tasks.All(), name)
	if err != nil {
		return err
	}
	r.task = task
	if _, ok := task.Param(paramVMNamespace); !ok && name == "create-vm-from-manifest" {
		r.strings[paramNamespace] = r.strings[paramVMNamespace]
		delete(r.strings, paramVMNamespace)
	}
	for param, value := range r.strings {
		if _, ok := task.Param(param); !ok && value != "" {
			return fmt.Errorf("only one of the options of %s and %s may be given", name, param)
		}
	}
	for param, items := range r.arrays {
		if _, ok := task.Param(param); !ok && len(items) > 0 {
			return fmt.Errorf("only one of the options of %s and %s may be given", name, param)
		}
	}
	// The Tasks' Roles do not give the rights that the step cache needs.
	if _, ok := task.Param("cache"); ok {
		r.strings["cache"] = "off"
	}
	if task.Disk != "" { // the program is not told the claim's name
		r.strings[task.Disk] = taskdisk.Volume
	}
	return nil
}

// locate finds the pod that this is, and where its files are.
func (r *request) locate(lookup func(string) (string, bool)) error {
	r.namespace, _ = lookup("POD_NAMESPACE")
	r.pod, _ = lookup("POD_NAME")
	if r.pod == "" {
		r.pod, _ = lookup("HOSTNAME")
	}
	if r.namespace == "" {
		data, err := os.ReadFile(namespaceFile)
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("finding the own namespace: %w", err)
		}
		r.namespace = strings.TrimSpace(string(data))
	}
	r.run = map[string]string{
		"TASK_NAMESPACE": r.namespace, "TASK_DISK": taskdisk.Mount + "/" + names.DiskFile, "TASK_SECRET_DIR": secretFolder,
	}
	if info, err := os.Stat(resultsFolder); err == nil && info.IsDir() {
		r.run["TASK_RESULTS_DIR"] = resultsFolder
	}
	return nil
}

// findRun finds the TaskRun of the own pod, for a task that is to let it own what it makes. Other
// tasks are not told of it, and so need no right to read pods.
func (r *request) findRun(ctx context.Context, connect func() (client.WithWatch, error)) error {
	if r.strings["setOwnerReference"] != "true" {
		return nil
	}
	c, err := connect()
	if err != nil {
		return fmt.Errorf("connecting to the Kubernetes API: %w", err)
	}
	key := client.ObjectKey{Namespace: r.namespace, Name: r.pod}
	var pod corev1.Pod
	if err := c.Get(ctx, key, &pod); err != nil {
		return fmt.Errorf("setOwnerReference: reading the own pod %s to find its TaskRun: %w; give the ServiceAccount the verb get on pods", key, err)
	}
	for _, owner := range pod.OwnerReferences {
		if owner.Kind == "TaskRun" {
			r.run["TASK_RUN_NAME"], r.run["TASK_RUN_UID"] = owner.Name, string(owner.UID)
			return nil
		}
	}
	return fmt.Errorf("setOwnerReference: pod %s belongs to no TaskRun that could own what is made", key)
}

// lookup is the environment that the task sees.
func (r *request) lookup(name string) (string, bool) {
	if value, ok := r.run[name]; ok {
		return value, true
	}
	for param, value := range r.strings {
		if (declare.Param{Name: param}).Env() == name {
			return value, true
		}
	}
	return "", false
}

// items are the arguments that the task sees: each array parameter's marker, then its items.
func (r *request) items() []string {
	var args []string
	for _, param := range slices.Sorted(maps.Keys(r.arrays)) {
		args = append(args, "params."+strconv.Quote(param)+"@"+r.run["TASK_RUN_UID"])
		args = append(args, r.arrays[param]...)
	}
	return args
}
