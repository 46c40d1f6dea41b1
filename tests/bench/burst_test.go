//go:build e2e

package bench

import (
	"context"
	"fmt"
	"math"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/watch"
	virtv1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-vm/slipway/tests/bench/goal"
	"github.com/slipway-vm/slipway/tests/env"
)

// A burst is so many machines, one each spacing, none of which waits for another.
const (
	burst   = 20
	spacing = 100 * time.Millisecond
)

// share is what each machine asks for of the node's processors: all of them have room on two.
var share = resource.MustParse("20m")

// stages of a start, in their order: of the launcher pod, then phases.
var stages = []string{"pod made", "pod placed", "Scheduling", "Scheduled", "Running"}

// BenchmarkBurst measures a burst of machines without a guest system: from the creation of each to
// its Running, and when each stage of that was reached. Moments are those at which a watch tells,
// for what the objects say is in whole seconds.
func BenchmarkBurst(b *testing.B) {
	c, ns := open(b)
	for b.Loop() {
		ctx, cancel := context.WithTimeout(b.Context(), bound)
		seen := follow(ctx, b, c, ns)
		made := make(map[string]time.Time, burst)
		ticker := time.NewTicker(spacing)
		for i := range burst {
			<-ticker.C
			name := fmt.Sprintf("burst-%d", i)
			made[name] = time.Now()
			must(b, c.Client.Create(ctx, small(ns, name)))
		}
		ticker.Stop()
		reached := seen.all(ctx, b)
		cancel()
		for _, stage := range stages {
			var took []float64
			for name, at := range reached {
				if moment, told := at[stage]; told {
					took = append(took, moment.Sub(made[name]).Seconds())
				}
			}
			if stage == "Running" && len(took) != burst {
				b.Fatalf("%d of %d machines run", len(took), burst)
			}
			goal.Report(b, fmt.Sprintf("burst of %d: create to %s, P50", burst, stage), percentile(took, 50), "s", "-")
			goal.Report(b, fmt.Sprintf("burst of %d: create to %s, P95", burst, stage), percentile(took, 95), "s", "-")
		}
		further(b, c, ns)
		must(b, c.Client.DeleteAllOf(b.Context(), &virtv1.VirtualMachineInstance{}, client.InNamespace(ns)))
	}
}

// small is a machine that asks for no more than its share.
func small(ns, name string) *virtv1.VirtualMachineInstance {
	machine := instance(ns, name)
	machine.Spec.Domain.Resources.Requests = corev1.ResourceList{corev1.ResourceCPU: share}
	return machine
}

// further measures one more machine beside those that run. Its time has no goal: without a guest system
// the others look for one all the time, and take every processor where they are emulated.
func further(b *testing.B, c *env.Cluster, ns string) {
	b.Helper()
	machine := small(ns, "further")
	took := startInstance(b, c, machine)
	goal.Report(b, fmt.Sprintf("one further VM beside %d: create to Running", burst), took.Seconds(), "s", goal.None)
	launcherMemory(b, c, machine, fmt.Sprintf("one further VM beside %d: memory beyond guest RAM and QEMU (PSS)", burst), "<= 30")
}

// told is a stage that a machine reached.
type told struct {
	machine, stage string
	at             time.Time
}

// story is what watches tell of the machines of a namespace.
type story chan told

// follow watches machines and their pods until ctx ends.
func follow(ctx context.Context, b *testing.B, c *env.Cluster, ns string) story {
	b.Helper()
	events := make(story, 64*burst)
	instances, err := c.Client.Watch(ctx, &virtv1.VirtualMachineInstanceList{}, client.InNamespace(ns))
	must(b, err)
	pods, err := c.Client.Watch(ctx, &corev1.PodList{}, client.InNamespace(ns))
	must(b, err)
	go events.from(ctx, instances)
	go events.from(ctx, pods)
	return events
}

func (s story) from(ctx context.Context, w watch.Interface) {
	defer w.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case event, more := <-w.ResultChan():
			if !more {
				return
			}
			s.tell(event.Object)
		}
	}
}

func (s story) tell(object any) {
	now := time.Now()
	switch object := object.(type) {
	case *virtv1.VirtualMachineInstance:
		s <- told{object.Name, string(object.Status.Phase), now}
	case *corev1.Pod:
		if len(object.OwnerReferences) == 0 {
			return
		}
		name := object.OwnerReferences[0].Name
		s <- told{name, "pod made", now}
		if object.Spec.NodeName != "" {
			s <- told{name, "pod placed", now}
		}
	}
}

// all returns, by machine, when each stage was first told, once all machines run or ctx ends.
func (s story) all(ctx context.Context, b *testing.B) map[string]map[string]time.Time {
	b.Helper()
	reached, running := map[string]map[string]time.Time{}, 0
	for running < burst {
		select {
		case <-ctx.Done():
			return reached
		case t := <-s:
			if reached[t.machine] == nil {
				reached[t.machine] = map[string]time.Time{}
			}
			if _, before := reached[t.machine][t.stage]; before {
				continue
			}
			reached[t.machine][t.stage] = t.at
			if t.stage == string(virtv1.Running) {
				running++
			}
		}
	}
	return reached
}

// percentile is the value below which so many of a hundred are, 0 of none.
func percentile(values []float64, percent float64) float64 {
	if len(values) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(values))
	return sorted[max(int(math.Ceil(percent/100*float64(len(sorted))))-1, 0)]
}
