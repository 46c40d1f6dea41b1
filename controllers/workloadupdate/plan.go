package workloadupdate

import (
	"slices"
	"time"

	virtv1 "kubevirt.io/api/core/v1"

	"github.com/slipway-vm/slipway/internal/names"
)

// The field's defaults of a strategy.
const (
	defaultSize     = 10
	defaultInterval = time.Minute
)

// strategy is what the KubeVirt object says of VMs with a former launcher.
type strategy struct {
	// evicts: they are restarted.
	evicts bool
	// size is how many at once, interval the time between two batches.
	size     int
	interval time.Duration
}

// strategyOf reads the strategy, which holds only once all of the installation has the version
// that the VMs are to get.
func strategyOf(kv *virtv1.KubeVirt) strategy {
	asked := kv.Spec.WorkloadUpdateStrategy
	s := strategy{size: defaultSize, interval: defaultInterval}
	s.evicts = kv.DeletionTimestamp == nil && kv.Status.Phase == virtv1.KubeVirtPhaseDeployed &&
		kv.Status.ObservedDeploymentID == kv.Status.TargetDeploymentID &&
		slices.Contains(asked.WorkloadUpdateMethods, virtv1.WorkloadUpdateMethodEvict)
	if asked.BatchEvictionSize != nil {
		s.size = *asked.BatchEvictionSize
	}
	if asked.BatchEvictionInterval != nil {
		s.interval = asked.BatchEvictionInterval.Duration
	}
	return s
}

// guest is a VMI with a former launcher, with who brings it back when it is gone.
type guest struct {
	vmi *virtv1.VirtualMachineInstance
	// vm or set is its controller; both are nil for a VMI of nobody's, and one whose controller is
	// not there.
	vm  *virtv1.VirtualMachine
	set *virtv1.VirtualMachineInstanceReplicaSet
}

// leaving says whether the guest is on its way out already.
func (g guest) leaving() bool {
	return g.vmi.DeletionTimestamp != nil || g.vm != nil && len(g.vm.Status.StateChangeRequests) > 0
}

// comesBack says whether the guest may be shut down: it runs, and its controller starts another.
func (g guest) comesBack() bool {
	switch {
	case g.vmi.Status.Phase != virtv1.Running || unresponsive(g.vmi):
		return false
	case g.set != nil:
		return g.set.DeletionTimestamp == nil && !g.set.Spec.Paused
	case g.vm == nil || g.vm.DeletionTimestamp != nil:
		return false
	}
	run, err := g.vm.RunStrategy()
	return err == nil && (run == virtv1.RunStrategyAlways || run == virtv1.RunStrategyRerunOnFailure || run == virtv1.RunStrategyManual)
}

// unresponsive says whether a part of vmi does not answer. It could only be ended by force, which
// nobody asked for.
func unresponsive(vmi *virtv1.VirtualMachineInstance) bool {
	for _, c := range vmi.Status.Conditions {
		if c.Type == virtv1.VirtualMachineInstanceReady {
			return slices.Contains([]string{
				names.ReasonQEMUUnresponsive, names.ReasonLibvirtUnresponsive, names.ReasonLauncherUnresponsive,
			}, c.Reason)
		}
	}
	return false
}

// batch returns the guests to shut down now, those first that have run for longest, and how many
// are left for later. Those that are still on their way out count.
func batch(guests []guest, size int) (now []guest, later int) {
	var due []guest
	for _, g := range guests {
		switch {
		case g.leaving():
			size--
		case g.comesBack():
			due = append(due, g)
		}
	}
	slices.SortStableFunc(due, func(a, b guest) int {
		return a.vmi.CreationTimestamp.Compare(b.vmi.CreationTimestamp.Time)
	})
	n := min(max(size, 0), len(due))
	return due[:n], len(due) - n
}
