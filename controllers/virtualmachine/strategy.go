package virtualmachine

import (
	"fmt"

	virtv1 "kubevirt.io/api/core/v1"
)

// strategy is what a run strategy means.
type strategy struct {
	name virtv1.VirtualMachineRunStrategy
	// startsAlways: a VM without a VMI is started, whatever became of the last.
	startsAlways bool
	// startsOnce: a VM without a VMI is started when it has had none since it took this
	// strategy, or when a start is requested in its status.
	startsOnce bool
	// rerunsAfter are the ends after which a VMI is replaced. A VMI that ended otherwise
	// stays, so that its end can be seen.
	rerunsAfter map[virtv1.VirtualMachineInstancePhase]bool
}

var strategies = []strategy{
	{name: virtv1.RunStrategyAlways, startsAlways: true, rerunsAfter: map[virtv1.VirtualMachineInstancePhase]bool{virtv1.Succeeded: true, virtv1.Failed: true}},
	{name: virtv1.RunStrategyRerunOnFailure, startsOnce: true, rerunsAfter: map[virtv1.VirtualMachineInstancePhase]bool{virtv1.Failed: true}},
	{name: virtv1.RunStrategyOnce, startsOnce: true},
	{name: virtv1.RunStrategyHalted},
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
	return strategy{}, fmt.Errorf("runStrategy %s is not acted on yet; use Always, RerunOnFailure, Once or Halted", name)
}

// wanted says whether the VM is to run: by the VMI that there is, or else by a new one.
func (s *scope) wanted() bool {
	switch {
	case s.strategy.startsAlways:
		return true
	case !s.strategy.startsOnce:
		return false
	case s.vmi == nil:
		return !s.hasRun() || s.startDue()
	}
	return !s.vmi.IsFinal() || s.startDue()
}

// mustGo says whether the VM's VMI is to be deleted: the strategy asks for none, or for
// another in its place once the status holds all that is known of it.
func (s *scope) mustGo() bool {
	if !s.strategy.startsAlways && !s.strategy.startsOnce {
		return true
	}
	return s.vmi.IsFinal() && s.strategy.rerunsAfter[s.vmi.Status.Phase] && endNoted(s)
}

// endNoted says whether the status already holds what follows from the VMI's end, so
// that the VMI may go.
func endNoted(s *scope) bool {
	return equalFailure(s.startFailure, s.vm.Status.StartFailure) && startRequested(s.vm) == s.startDue()
}

// startDue says whether a VM that has run is to be started again: its VMI ended so, or
// the status says it after that VMI has gone. What runs always needs no such reason.
func (s *scope) startDue() bool {
	if !s.strategy.startsOnce {
		return false
	}
	if s.vmi == nil || s.vmi.DeletionTimestamp != nil {
		return s.hasRun() && startRequested(s.vm)
	}
	return s.vmi.IsFinal() && s.strategy.rerunsAfter[s.vmi.Status.Phase]
}

// hasRun says whether the VM has had a VMI since it took its run strategy.
func (s *scope) hasRun() bool { return s.vm.Status.RunStrategy == s.strategy.name }

func startRequested(vm *virtv1.VirtualMachine) bool {
	for _, request := range vm.Status.StateChangeRequests {
		if request.Action == virtv1.StartRequest {
			return true
		}
	}
	return false
}

// recordedStrategy is the run strategy for the status: one that starts a VM once is
// written down when it has.
func recordedStrategy(s *scope) virtv1.VirtualMachineRunStrategy {
	if s.strategy.startsOnce && s.vmi == nil {
		return s.vm.Status.RunStrategy
	}
	return s.strategy.name
}

// requests are those for the status: a start, from the end of a VMI that is to be
// replaced until the next is there.
func requests(s *scope) []virtv1.VirtualMachineStateChangeRequest {
	if !s.startDue() {
		return nil
	}
	return []virtv1.VirtualMachineStateChangeRequest{{Action: virtv1.StartRequest}}
}
