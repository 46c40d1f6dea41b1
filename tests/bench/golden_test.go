//go:build e2e

package bench

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	tektonv1 "github.com/tektoncd/pipeline/pkg/apis/pipeline/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/rand"
	virtv1 "kubevirt.io/api/core/v1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-vm/slipway/internal/stepcache"
	"github.com/slipway-vm/slipway/tests/bench/goal"
	"github.com/slipway-vm/slipway/tests/e2e/installer/disc"
	"github.com/slipway-vm/slipway/tests/env"
)

// BenchmarkGoldenImage runs the pipeline golden-image three times: for the first time, with nothing
// changed, and with a changed line of the customization, which brings the image up to date and
// installs a package, as golden images are made for.
func BenchmarkGoldenImage(b *testing.B) {
	c, _ := open(b)
	for b.Loop() {
		image, packages := "bench-"+rand.String(5), packageSource(b, c)
		defer removeImage(b, c, image)
		params := map[string]string{
			"imageURL": serveDebian(b, c), "imageName": image, "diskSize": "4Gi", "guestUser": "debian",
			"virtCommands": packages + "update\ninstall rsync\nwrite /etc/motd:first " + image + "\n", "checkScript": "cat /etc/motd",
			"defaultInstancetype": "u1.small", "defaultPreference": "debian",
		}
		instances := watchInstances(b, c)
		first := runGolden(b, c, params)
		goal.Report(b, "golden-image, first run", first.total().Seconds(), "s", "-")
		tool := first.toolTime(b, c)
		guest := overlap(first.guest(instances), span{first.run.Status.StartTime.Time, first.run.Status.CompletionTime.Time})
		goal.Report(b, "of it virt-customize itself", tool.Seconds(), "s", "-")
		goal.Report(b, "of it a guest that boots, until its check has run", guest.Seconds(), "s", "-")
		outside := first.total() - tool - guest
		goal.Report(b, "of it all else", outside.Seconds(), "s", "-")
		goal.Report(b, "share of all else", 100*outside.Seconds()/first.total().Seconds(), "%", "<= 15")
		first.print()

		second := runGolden(b, c, params)
		goal.Report(b, "golden-image, nothing changed", second.total().Seconds(), "s", "<= 10")
		goal.Report(b, "tasks of that run", float64(len(second.tasks)), "tasks", "1")

		params["virtCommands"] = packages + "update\ninstall rsync\nwrite /etc/motd:second " + image + "\n"
		third := runGolden(b, c, params)
		goal.Report(b, "golden-image, a line of the customization changed", third.total().Seconds(), "s", "-")
		goal.Report(b, "its imports", float64(len(third.named("import"))), "tasks", "0")
		third.print()
	}
}

// golden is a run of golden-image that has succeeded, with its TaskRuns in the order of their start.
type golden struct {
	run   *tektonv1.PipelineRun
	tasks []tektonv1.TaskRun
}

// span is a stretch of time.
type span struct{ begin, end time.Time }

func runGolden(b *testing.B, c *env.Cluster, params map[string]string) golden {
	b.Helper()
	run := pipelineRun(b, c, "golden-image", params)
	must(b, c.Client.Create(b.Context(), run))
	run, err := awaitRun(b.Context(), c, run)
	must(b, err)
	var tasks tektonv1.TaskRunList
	must(b, c.Client.List(b.Context(), &tasks, client.InNamespace(run.Namespace), client.MatchingLabels{"tekton.dev/pipelineRun": run.Name}))
	slices.SortFunc(tasks.Items, func(x, y tektonv1.TaskRun) int { return x.Status.StartTime.Compare(y.Status.StartTime.Time) })
	return golden{run: run, tasks: tasks.Items}
}

func (g golden) total() time.Duration {
	return g.run.Status.CompletionTime.Sub(g.run.Status.StartTime.Time)
}

// named returns the TaskRuns of the pipeline's task of that name.
func (g golden) named(name string) []tektonv1.TaskRun {
	return slices.DeleteFunc(slices.Clone(g.tasks), func(t tektonv1.TaskRun) bool { return t.Labels["tekton.dev/pipelineTask"] != name })
}

// toolTime is how long virt-customize itself ran, as its task's log tells.
func (g golden) toolTime(b *testing.B, c *env.Cluster) time.Duration {
	b.Helper()
	for _, task := range g.named("customize") {
		return toolTime(b, c, task)
	}
	b.Fatal("the run had no task customize")
	return 0
}

// toolTime returns what the task's log says that virt-customize took.
func toolTime(b *testing.B, c *env.Cluster, task tektonv1.TaskRun) time.Duration {
	b.Helper()
	log, err := c.Log(b.Context(), task.Namespace, task.Status.PodName, task.Status.Steps[0].Container)
	must(b, err)
	for line := range strings.Lines(log) {
		record := struct{ Msg, Took string }{}
		if json.Unmarshal([]byte(line), &record) == nil && record.Msg == "virt-customize has ended" {
			took, err := time.ParseDuration(record.Took)
			must(b, err)
			return took
		}
	}
	b.Fatalf("the log of %s does not tell how long virt-customize took", task.Name)
	return 0
}

// guest is the time from when a guest of the run was started until the check in it had run, and it
// was let go.
func (g golden) guest(instances *instances) span {
	volume := ""
	for _, result := range g.run.Status.Results {
		if result.Name == "volume" {
			volume = result.Value.StringVal
		}
	}
	return instances.life(volume + "-check")
}

// print lists the run's tasks: when they began, how long their pods took to start, their step and their end.
func (g golden) print() {
	for _, task := range g.tasks {
		step, begun := task.Status.Steps[0].Terminated, task.Status.StartTime.Time
		fmt.Printf("    %-10s at %4.0f s: pod %3.0f s, step %4.0f s, end %3.0f s\n", task.Labels["tekton.dev/pipelineTask"],
			begun.Sub(g.run.Status.StartTime.Time).Seconds(), step.StartedAt.Sub(begun).Seconds(),
			step.FinishedAt.Sub(step.StartedAt.Time).Seconds(), task.Status.CompletionTime.Sub(step.FinishedAt.Time).Seconds())
	}
}

// overlap is how much of s lies in within.
func overlap(s, within span) time.Duration {
	if s.begin.Before(within.begin) {
		s.begin = within.begin
	}
	if s.end.After(within.end) {
		s.end = within.end
	}
	return max(0, s.end.Sub(s.begin))
}

// instances tells when VMIs of the tasks' namespace began to run, and when they were deleted.
type instances struct {
	mu    sync.Mutex
	lives map[string]span
}

// watchInstances notes what happens to VMIs until the benchmark ends.
func watchInstances(b *testing.B, c *env.Cluster) *instances {
	b.Helper()
	seen := &instances{lives: map[string]span{}}
	watching, stop := context.WithCancel(b.Context())
	b.Cleanup(stop)
	watcher, err := c.Client.Watch(watching, &virtv1.VirtualMachineInstanceList{}, client.InNamespace(env.NamespaceTasks))
	must(b, err)
	go func() {
		for event := range watcher.ResultChan() {
			if vmi, ok := event.Object.(*virtv1.VirtualMachineInstance); ok {
				seen.note(vmi)
			}
		}
	}()
	return seen
}

func (i *instances) note(vmi *virtv1.VirtualMachineInstance) {
	i.mu.Lock()
	defer i.mu.Unlock()
	life := i.lives[vmi.Name]
	for _, transition := range vmi.Status.PhaseTransitionTimestamps {
		if transition.Phase == virtv1.Running {
			life.begin = transition.PhaseTransitionTimestamp.Time
		}
	}
	if vmi.DeletionTimestamp != nil {
		life.end = vmi.DeletionTimestamp.Time
	}
	i.lives[vmi.Name] = life
}

// life is when the VMI of that name ran.
func (i *instances) life(name string) span {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.lives[name]
}

// serveDebian serves the Debian guest's disk under one URL until the benchmark ends.
func serveDebian(b *testing.B, c *env.Cluster) string {
	b.Helper()
	disk, err := c.Guest(b.Context(), "debian")
	must(b, err)
	serving, stop := context.WithCancel(b.Context())
	b.Cleanup(stop)
	root, err := c.Serve(serving, http.FileServer(http.Dir(filepath.Dir(disk))))
	must(b, err)
	return root + "/" + filepath.Base(disk)
}

// packageSource serves this machine's Debian mirror until the benchmark ends, and returns the commands by
// which virt-customize makes a guest take packages from it.
func packageSource(b *testing.B, c *env.Cluster) string {
	b.Helper()
	mirror, err := disc.Mirror(b.Context())
	must(b, err)
	serving, stop := context.WithCancel(b.Context())
	b.Cleanup(stop)
	proxy, err := c.Serve(serving, mirror)
	must(b, err)
	return "write /etc/apt/sources.list:deb http://deb.debian.org/debian bookworm main\n" +
		fmt.Sprintf("write /etc/apt/apt.conf.d/90proxy:Acquire::http::Proxy %q;\n", proxy)
}

// removeImage deletes what the runs published, and what they left in the step cache.
func removeImage(b *testing.B, c *env.Cluster, image string) {
	b.Helper()
	ctx := context.WithoutCancel(b.Context())
	source := &cdiv1.DataSource{ObjectMeta: metav1.ObjectMeta{Namespace: env.NamespaceTasks, Name: image}}
	must(b, client.IgnoreNotFound(c.Client.Delete(ctx, source)))
	all := &cdiv1.DataVolume{}
	must(b, c.Client.DeleteAllOf(ctx, all, client.InNamespace(env.NamespaceTasks), client.MatchingLabels{"slipway-vm.github.io/golden-image": image}))
	must(b, c.Client.DeleteAllOf(ctx, all, client.InNamespace(env.NamespaceTasks), client.HasLabels{stepcache.LabelState}))
}
