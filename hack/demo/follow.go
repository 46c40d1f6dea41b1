package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	tektonv1 "github.com/tektoncd/pipeline/pkg/apis/pipeline/v1"
	"k8s.io/apimachinery/pkg/watch"
	"knative.dev/pkg/apis"
	virtv1 "kubevirt.io/api/core/v1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// boundRun is how long the pipeline may take; software emulation makes it slow.
const boundRun = 40 * time.Minute

// follow prints what happens until the run has ended, and fails when the run did.
func (d *demo) follow(ctx context.Context) error {
	watching, stop := context.WithCancel(ctx)
	defer stop()
	seen := &changes{demo: d, begun: time.Now(), last: map[string]string{}}
	for _, list := range []client.ObjectList{&tektonv1.TaskRunList{}, &cdiv1.DataVolumeList{}, &virtv1.VirtualMachineInstanceList{}} {
		go seen.watch(watching, list)
	}
	var reason string
	err := d.cluster.Await(ctx, d.out, d.run, boundRun, func(obj client.Object) (string, bool, error) {
		run := obj.(*tektonv1.PipelineRun)
		d.run = run
		condition := run.Status.GetCondition(apis.ConditionSucceeded)
		if condition == nil {
			return "created", false, nil
		}
		reason = condition.Message
		return condition.Reason, !condition.IsUnknown(), nil
	})
	if err != nil {
		return err
	}
	if condition := d.run.Status.GetCondition(apis.ConditionSucceeded); !condition.IsTrue() {
		d.cluster.Dump(ctx, d.out, namespace)
		return errors.New("the PipelineRun failed: " + reason)
	}
	return d.addTaskTimes(ctx)
}

// changes prints each change of the objects that it watches, once.
type changes struct {
	demo  *demo
	begun time.Time
	mutex sync.Mutex
	last  map[string]string
}

// watch watches one kind; the demo goes on without it when that ends.
func (c *changes) watch(ctx context.Context, list client.ObjectList) {
	for ctx.Err() == nil {
		watcher, err := c.demo.cluster.Client.Watch(ctx, list, client.InNamespace(namespace))
		if err != nil {
			fmt.Fprintln(c.demo.out, "not showing progress:", err)
			return
		}
		for event := range watcher.ResultChan() {
			if event.Type == watch.Added || event.Type == watch.Modified {
				c.show(event.Object)
			}
		}
	}
}

func (c *changes) show(object any) {
	name, words := "", ""
	switch o := object.(type) {
	case *tektonv1.TaskRun:
		if o.Labels["tekton.dev/pipelineRun"] != c.demo.run.Name {
			return
		}
		name = "task " + o.Labels["tekton.dev/pipelineTask"]
		if condition := o.Status.GetCondition(apis.ConditionSucceeded); condition != nil {
			words = condition.Reason
			if condition.IsFalse() {
				words += ": " + condition.Message
			}
		}
		for _, result := range o.Status.Results {
			if result.Name == "stdout" {
				words += "; it printed: " + result.Value.StringVal
			}
		}
	case *cdiv1.DataVolume:
		name, words = "disk "+o.Name, string(o.Status.Phase)
		if p := o.Status.Progress; p != "" && p != "N/A" && o.Status.Phase != cdiv1.Succeeded {
			words += " " + string(p)
		}
	case *virtv1.VirtualMachineInstance:
		name, words = "VM "+o.Name, string(o.Status.Phase)
		for _, condition := range o.Status.Conditions {
			if condition.Type == virtv1.VirtualMachineInstanceAgentConnected && condition.Status == "True" {
				words += ", its agent is connected"
			}
		}
	}
	c.print(name, words)
}

func (c *changes) print(name, words string) {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	if words == "" || c.last[name] == words {
		return
	}
	c.last[name] = words
	fmt.Fprintf(c.demo.out, "  %6.1fs %s: %s\n", time.Since(c.begun).Seconds(), name, words)
}

// addTaskTimes adds the run's tasks to the table, in the order in which they began.
func (d *demo) addTaskTimes(ctx context.Context) error {
	var tasks tektonv1.TaskRunList
	err := d.cluster.Client.List(ctx, &tasks, client.InNamespace(namespace), client.MatchingLabels{"tekton.dev/pipelineRun": d.run.Name})
	if err != nil {
		return fmt.Errorf("listing the run's tasks: %w", err)
	}
	slices.SortFunc(tasks.Items, func(a, b tektonv1.TaskRun) int { return a.CreationTimestamp.Compare(b.CreationTimestamp.Time) })
	for _, task := range tasks.Items {
		if task.Status.StartTime != nil && task.Status.CompletionTime != nil {
			took := task.Status.CompletionTime.Sub(task.Status.StartTime.Time)
			d.times = append(d.times, timed{name: "  " + task.Labels["tekton.dev/pipelineTask"], took: took})
		}
	}
	return nil
}
