package workloadupdate

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	virtv1 "kubevirt.io/api/core/v1"
)

var start = metav1.NewTime(time.Date(2026, 11, 23, 12, 0, 0, 0, time.UTC))

// of makes a guest of a VM with a run strategy, that runs since some minutes after start.
func of(name string, run virtv1.VirtualMachineRunStrategy, minutes int, change ...func(*guest)) guest {
	g := guest{vmi: &virtv1.VirtualMachineInstance{}, vm: &virtv1.VirtualMachine{}}
	g.vmi.Name, g.vmi.Status.Phase = name, virtv1.Running
	g.vmi.CreationTimestamp = metav1.NewTime(start.Add(time.Duration(minutes) * time.Minute))
	g.vm.Spec.RunStrategy = &run
	for _, c := range change {
		c(&g)
	}
	return g
}

func TestBatch(t *testing.T) {
	leaving := func(g *guest) { g.vmi.DeletionTimestamp = &start }
	asked := func(g *guest) {
		g.vm.Status.StateChangeRequests = []virtv1.VirtualMachineStateChangeRequest{{Action: virtv1.StartRequest}}
	}
	alone := func(g *guest) { g.vm = nil }
	going := func(g *guest) { g.vm.DeletionTimestamp = &start }
	member := func(g *guest) { g.vm, g.set = nil, &virtv1.VirtualMachineInstanceReplicaSet{} }
	still := func(g *guest) {
		g.vmi.Status.Conditions = []virtv1.VirtualMachineInstanceCondition{
			{Type: virtv1.VirtualMachineInstanceReady, Status: corev1.ConditionFalse, Reason: "QEMUUnresponsive"},
		}
	}
	starting := func(g *guest) { g.vmi.Status.Phase = virtv1.Scheduled }
	const always = virtv1.RunStrategyAlways
	for name, c := range map[string]struct {
		guests []guest
		size   int
		want   string
		later  int
	}{
		"none":                         {size: 10},
		"the oldest first":             {[]guest{of("b", always, 2), of("a", always, 1), of("c", always, 3)}, 2, "a b", 1},
		"those on their way out count": {[]guest{of("a", always, 1, leaving), of("b", always, 2, asked), of("c", always, 3)}, 3, "c", 0},
		"and may be enough":            {[]guest{of("a", always, 1, leaving), of("b", always, 2)}, 1, "", 1},
		"and more than enough":         {[]guest{of("a", always, 1, leaving), of("b", always, 1, leaving), of("c", always, 2)}, 1, "", 1},
		"who starts again when asked":  {[]guest{of("a", virtv1.RunStrategyRerunOnFailure, 1), of("b", virtv1.RunStrategyManual, 2)}, 10, "a b", 0},
		"who would stay away":          {[]guest{of("a", virtv1.RunStrategyOnce, 1), of("b", virtv1.RunStrategyHalted, 2), of("c", always, 3, alone), of("d", always, 4, going)}, 10, "", 0},
		"who does not answer":          {[]guest{of("a", always, 1, still)}, 10, "", 0},
		"who is being started":         {[]guest{of("a", always, 1, starting)}, 10, "", 0},
		"one of a set":                 {[]guest{of("a", always, 1, member)}, 10, "a", 0},
		"one of a set that is paused":  {[]guest{of("a", always, 1, member, func(g *guest) { g.set.Spec.Paused = true })}, 10, "", 0},
		"one of a set that goes":       {[]guest{of("a", always, 1, member, func(g *guest) { g.set.DeletionTimestamp = &start })}, 10, "", 0},
	} {
		t.Run(name, func(t *testing.T) {
			now, later := batch(c.guests, c.size)
			var got []string
			for _, g := range now {
				got = append(got, g.vmi.Name)
			}
			if strings.Join(got, " ") != c.want || later != c.later {
				t.Errorf("got %v and %d later, want %q and %d", got, later, c.want, c.later)
			}
		})
	}
}

func TestStrategy(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*virtv1.KubeVirt)
		want   strategy
	}{
		"as it is installed": {func(kv *virtv1.KubeVirt) { kv.Spec.WorkloadUpdateStrategy.WorkloadUpdateMethods = nil }, strategy{false, 10, time.Minute}},
		"asked for":          {func(*virtv1.KubeVirt) {}, strategy{true, 10, time.Minute}},
		"live migration alone": {func(kv *virtv1.KubeVirt) {
			kv.Spec.WorkloadUpdateStrategy.WorkloadUpdateMethods = []virtv1.WorkloadUpdateMethod{virtv1.WorkloadUpdateMethodLiveMigrate}
		}, strategy{false, 10, time.Minute}},
		"in batches": {func(kv *virtv1.KubeVirt) {
			kv.Spec.WorkloadUpdateStrategy.BatchEvictionSize = new(3)
			kv.Spec.WorkloadUpdateStrategy.BatchEvictionInterval = &metav1.Duration{Duration: time.Hour}
		}, strategy{true, 3, time.Hour}},
		"in the middle of an upgrade": {func(kv *virtv1.KubeVirt) { kv.Status.TargetDeploymentID = "2" }, strategy{false, 10, time.Minute}},
		"before all is there":         {func(kv *virtv1.KubeVirt) { kv.Status.Phase = virtv1.KubeVirtPhaseDeploying }, strategy{false, 10, time.Minute}},
		"being removed":               {func(kv *virtv1.KubeVirt) { kv.DeletionTimestamp = &start }, strategy{false, 10, time.Minute}},
	} {
		t.Run(name, func(t *testing.T) {
			kv := &virtv1.KubeVirt{}
			kv.Status.Phase, kv.Status.ObservedDeploymentID, kv.Status.TargetDeploymentID = virtv1.KubeVirtPhaseDeployed, "1", "1"
			kv.Spec.WorkloadUpdateStrategy.WorkloadUpdateMethods = []virtv1.WorkloadUpdateMethod{virtv1.WorkloadUpdateMethodEvict}
			c.change(kv)
			if got := strategyOf(kv); got != c.want {
				t.Errorf("got %+v, want %+v", got, c.want)
			}
		})
	}
}
