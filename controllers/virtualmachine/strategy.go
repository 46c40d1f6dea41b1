package virtualmachine

import (
	"fmt"

	virtv1 "kubevirt.io/api/core/v1"
)

// strategy is what a run strategy means. Under every one, a start that is requested in
// the VM's status is made, and a VMI that is to be stopped goes; under Manual there is
// nothing else.
type strategy struct {
	name virtv1.VirtualMachineRunStrategy
	// halts: the VM has no VMI.
	halts bool
	// startsAlways: a VM without a VMI is started, whatever became of the last, and a VMI
	// that ended is replaced.
	startsAlways bool
	// startsOnce: a VM without a VMI is started when it has had none since it took this
	// strategy. A VMI that ended stays, so that its end can be seen.
	startsOnce bool
	// startsFailed: a VM whose VMI failed requests its own start.
	startsFailed bool
}

var strategies = []strategy{
	{name: virtv1.RunStrategyAlways, startsAlways: true},
	{name: virtv1.RunStrategyRerunOnFailure, startsOnce: true, startsFailed: true},
	{name: virtv1.RunStrategyOnce, startsOnce: true},
	{name: virtv1.RunStrategyManual},
	{name: virtv1.RunStrategyHalted, halts: true},
}

func strategyOf(vm *virtv1.VirtualMachine) (strategy, error) {
	name, err := vm.RunStrategy()
	if err != nil {
		return strategy{}, fmt.Errorf("reading the run strategy: %w", err)
	}
	for _, known := range strategies {
		if known.name == name {
			return known, nil
		}
	}
	return strategy{}, fmt.Errorf("runStrategy %s is not acted on yet; use Always, RerunOnFailure, Once, Manual or Halted", name)
}

// startsByItself says whether the VM is ever started without anybody's request.
func (s strategy) startsByItself() bool { return s.startsAlways || s.startsOnce }

// wanted says whether the VM is to run: by the VMI that there is, or else by a new one.
func (s *scope) wanted() bool {
	switch {
	case s.strategy.startsAlways || s.startRequest() != nil:
		return true
	case s.strategy.halts:
		return false
	case s.vmi == nil:
		return s.strategy.startsOnce && !s.hasRun()
	}
	return !s.vmi.IsFinal() && !s.stopRequested()
}

// mustGo says whether the VM's VMI is to be deleted: somebody wants none, or another in
// its place once the status holds all that is known of it.
func (s *scope) mustGo() bool {
	switch {
	case s.strategy.halts || s.stopRequested():
		return true
	case !s.vmi.IsFinal() || !endNoted(s):
		return false
	}
	return s.strategy.startsAlways || s.startRequest() != nil
}

// endNoted says whether the status already holds what follows from the VMI's end, so
// that the VMI may go.
func endNoted(s *scope) bool {
	return equalFailure(s.startFailure, s.vm.Status.StartFailure) && equalRequests(s.requests, s.vm.Status.StateChangeRequests)
}

// hasRun says whether the VM has had a VMI since it took its run strategy.
func (s *scope) hasRun() bool { return s.vm.Status.RunStrategy == s.strategy.name }

// recordedStrategy is the run strategy for the status: one that starts a VM once is
// written down when it has.
func recordedStrategy(s *scope) virtv1.VirtualMachineRunStrategy {
	if s.strategy.startsOnce && s.vmi == nil {
		return s.vm.Status.RunStrategy
	}
	return s.strategy.name
}
