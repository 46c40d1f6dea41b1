//go:build e2e

package bench

import (
	"context"
	"fmt"
	"os"
	"slices"
	"testing"

	tektonv1 "github.com/tektoncd/pipeline/pkg/apis/pipeline/v1"
	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	virtv1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/slipway-vm/slipway/tests/bench/goal"
	"github.com/slipway-vm/slipway/tests/env"
	"github.com/slipway-vm/slipway/tests/fixture"
)

// How many runs go at a time: those that only make a VM, and those that start it, too.
const (
	manyRuns    = 50
	runsStarted = 12
)

// labelBench marks the VMs that a benchmark makes.
const labelBench = "slipway-vm.github.io/bench"

// crowd is a number of runs at a time.
type crowd struct {
	what  string
	count int
	// start says whether the runs start their VMs.
	start bool
	// goal is how many times the median the slowest may take.
	goal string
}

// BenchmarkConcurrentRuns starts many runs of vm-from-manifest at once.
func BenchmarkConcurrentRuns(b *testing.B) {
	c, _ := open(b)
	for b.Loop() {
		many(b, c, crowd{what: "of a halted VM", count: manyRuns, goal: "<= 3"})
		many(b, c, crowd{what: "that start a VM without a guest OS", count: runsStarted, start: true, goal: "-"})
	}
}

// many starts the runs at once, waits for all, and reports how many succeeded and how long they took.
func many(b *testing.B, c *env.Cluster, w crowd) {
	b.Helper()
	count, what := w.count, w.what
	runs := make([]*tektonv1.PipelineRun, count)
	seconds := make([]float64, count)
	failures := make([]error, count)
	defer func() {
		for _, run := range runs {
			if run != nil {
				remove(b, c, run)
			}
		}
		must(b, c.Client.DeleteAllOf(context.WithoutCancel(b.Context()), &virtv1.VirtualMachine{},
			client.InNamespace(env.NamespaceTasks), client.HasLabels{labelBench}))
	}()
	var group errgroup.Group
	for i := range count {
		runs[i] = pipelineRun(b, c, "vm-from-manifest", map[string]string{
			"manifest": manifest(b), "startVM": fmt.Sprint(w.start),
		})
		must(b, c.Client.Create(b.Context(), runs[i]))
		group.Go(func() error {
			ended, err := awaitRun(b.Context(), c, runs[i])
			if err != nil {
				failures[i] = err
				return nil
			}
			seconds[i] = ended.Status.CompletionTime.Sub(ended.CreationTimestamp.Time).Seconds()
			return nil
		})
	}
	must(b, group.Wait())
	var took []float64
	for i := range count {
		if failures[i] != nil {
			fmt.Fprintln(os.Stdout, "   ", failures[i])
			continue
		}
		took = append(took, seconds[i])
	}
	goal.Report(b, fmt.Sprintf("%d runs at once %s: succeeded", count, what), float64(len(took)), "runs", fmt.Sprint(count))
	if len(took) == 0 {
		b.Fatal("none succeeded")
	}
	goal.Report(b, fmt.Sprintf("%d runs at once %s: median", count, what), median(took), "s", "-")
	goal.Report(b, fmt.Sprintf("%d runs at once %s: slowest", count, what), slices.Max(took), "s", "-")
	goal.Report(b, fmt.Sprintf("%d runs at once %s: slowest to median", count, what), slices.Max(took)/median(took), "x", w.goal)
}

// manifest is the YAML of a halted VM without a guest OS, whose name is generated. It asks for
// little of a CPU, so that the node takes all of them, as a raised cpuAllocationRatio does.
func manifest(b *testing.B) string {
	b.Helper()
	vm := fixture.VM("", "", fixture.EmptyDisk("root", "16Mi"), fixture.Strategy(virtv1.RunStrategyHalted), fixture.Memory("64Mi"))
	vm.GenerateName, vm.Labels = "bench-", map[string]string{labelBench: "concurrent"}
	spec := &vm.Spec.Template.Spec
	spec.Domain.Resources.Requests = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("20m")}
	spec.TerminationGracePeriodSeconds = new(int64(0))
	data, err := yaml.Marshal(vm)
	must(b, err)
	return string(data)
}
