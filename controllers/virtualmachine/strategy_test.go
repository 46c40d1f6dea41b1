package virtualmachine

import (
	"testing"

	virtv1 "kubevirt.io/api/core/v1"
)

// asked is a VM whose status asks for a start.
func asked() *virtv1.VirtualMachine {
	vm := &virtv1.VirtualMachine{}
	vm.Status.StateChangeRequests = []virtv1.VirtualMachineStateChangeRequest{{Action: virtv1.StartRequest}}
	return vm
}

func TestWhatARunStrategyWants(t *testing.T) {
	const always, rerun, once, halted = virtv1.RunStrategyAlways, virtv1.RunStrategyRerunOnFailure, virtv1.RunStrategyOnce, virtv1.RunStrategyHalted
	for name, c := range map[string]struct {
		strategy, before virtv1.VirtualMachineRunStrategy
		vm               *virtv1.VirtualMachine
		vmi              *virtv1.VirtualMachineInstance
		// wanted: it is to run; goes: its VMI is deleted in this pass; asks: the status asks for a start.
		wanted, goes, asks bool
		recorded           virtv1.VirtualMachineRunStrategy
	}{
		"always, new":                  {strategy: always, wanted: true, recorded: always},
		"always, powered off":          {strategy: always, vmi: vmi(virtv1.Succeeded), wanted: true, goes: true, recorded: always},
		"always, running":              {strategy: always, vmi: vmi(virtv1.Running), wanted: true, recorded: always},
		"halted, running":              {strategy: halted, vmi: vmi(virtv1.Running), goes: true, recorded: halted},
		"halted, ended":                {strategy: halted, vmi: vmi(virtv1.Succeeded), goes: true, recorded: halted},
		"once, new":                    {strategy: once, wanted: true, recorded: ""},
		"once, halted before":          {strategy: once, before: halted, wanted: true, recorded: halted},
		"once, running":                {strategy: once, vmi: vmi(virtv1.Running), wanted: true, recorded: once},
		"once, powered off":            {strategy: once, before: once, vmi: vmi(virtv1.Succeeded), recorded: once},
		"once, failed":                 {strategy: once, before: once, vmi: vmi(virtv1.Failed), recorded: once},
		"once, its VMI deleted":        {strategy: once, before: once, recorded: once},
		"rerun, new":                   {strategy: rerun, wanted: true, recorded: ""},
		"rerun, running":               {strategy: rerun, vmi: vmi(virtv1.Running), wanted: true, recorded: rerun},
		"rerun, powered off":           {strategy: rerun, before: rerun, vmi: vmi(virtv1.Succeeded), recorded: rerun},
		"rerun, its VMI deleted":       {strategy: rerun, before: rerun, recorded: rerun},
		"rerun, deleted while running": {strategy: rerun, before: rerun, vmi: deleted(vmi(virtv1.Failed)), recorded: rerun},
		"rerun, failed":                {strategy: rerun, before: rerun, vmi: vmi(virtv1.Failed), wanted: true, asks: true, recorded: rerun},
		"rerun, failed, noted":         {strategy: rerun, before: rerun, vm: asked(), vmi: vmi(virtv1.Failed), wanted: true, goes: true, asks: true, recorded: rerun},
		"rerun, failed and going":      {strategy: rerun, before: rerun, vm: asked(), vmi: deleted(vmi(virtv1.Failed)), wanted: true, asks: true, recorded: rerun},
		"rerun, failed and gone":       {strategy: rerun, before: rerun, vm: asked(), wanted: true, asks: true, recorded: rerun},
		"rerun, started again":         {strategy: rerun, before: rerun, vm: asked(), vmi: vmi(virtv1.Pending), wanted: true, recorded: rerun},
	} {
		t.Run(name, func(t *testing.T) {
			s := scope{vm: c.vm, vmi: c.vmi}
			if s.vm == nil {
				s.vm = &virtv1.VirtualMachine{}
			}
			s.vm.Spec.RunStrategy, s.vm.Status.RunStrategy = &c.strategy, c.before
			if s.strategy, s.strategyError = strategyOf(s.vm); s.strategyError != nil {
				t.Fatal(s.strategyError)
			}
			if got := s.wanted(); got != c.wanted {
				t.Errorf("wanted: %v", got)
			}
			if c.vmi != nil && c.vmi.DeletionTimestamp == nil {
				if got := s.mustGo(); got != c.goes {
					t.Errorf("its VMI must go: %v", got)
				}
			}
			if got := len(requests(&s)) == 1; got != c.asks {
				t.Errorf("a start is requested: %v", got)
			}
			if got := recordedStrategy(&s); got != c.recorded {
				t.Errorf("recorded as %q, want %q", got, c.recorded)
			}
		})
	}
}

func TestRunningTrueIsAlways(t *testing.T) {
	for running, want := range map[bool]virtv1.VirtualMachineRunStrategy{true: virtv1.RunStrategyAlways, false: virtv1.RunStrategyHalted} {
		got, err := strategyOf(&virtv1.VirtualMachine{Spec: virtv1.VirtualMachineSpec{Running: new(running)}})
		if err != nil || got.name != want {
			t.Errorf("running %v: got %v, %v", running, got, err)
		}
	}
	if _, err := strategyOf(&virtv1.VirtualMachine{Spec: virtv1.VirtualMachineSpec{RunStrategy: new(virtv1.RunStrategyManual)}}); err == nil {
		t.Error("Manual passed as acted on")
	}
}
