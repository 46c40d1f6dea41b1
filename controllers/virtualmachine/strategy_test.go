package virtualmachine

import (
	"testing"

	"k8s.io/apimachinery/pkg/types"
	virtv1 "kubevirt.io/api/core/v1"
)

// requesting is a VM with these requests in its status.
func requesting(requests ...virtv1.VirtualMachineStateChangeRequest) *virtv1.VirtualMachine {
	vm := &virtv1.VirtualMachine{}
	vm.Status.StateChangeRequests = requests
	return vm
}

// asked is a VM whose status asks for a start.
func asked() *virtv1.VirtualMachine { return requesting(start) }

var (
	start       = virtv1.VirtualMachineStateChangeRequest{Action: virtv1.StartRequest}
	startPaused = virtv1.VirtualMachineStateChangeRequest{
		Action: virtv1.StartRequest, Data: map[string]string{virtv1.StartRequestDataPausedKey: virtv1.StartRequestDataPausedTrue},
	}
	stop      = virtv1.VirtualMachineStateChangeRequest{Action: virtv1.StopRequest, UID: new(types.UID("vmi-uid"))} // of what vmi makes
	stopOther = virtv1.VirtualMachineStateChangeRequest{Action: virtv1.StopRequest, UID: new(types.UID("another"))}
	stopNone  = virtv1.VirtualMachineStateChangeRequest{Action: virtv1.StopRequest}
)

func TestWhatARunStrategyWants(t *testing.T) {
	const always, rerun, once, halted = virtv1.RunStrategyAlways, virtv1.RunStrategyRerunOnFailure, virtv1.RunStrategyOnce, virtv1.RunStrategyHalted
	const manual = virtv1.RunStrategyManual
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
		"always, to be restarted":      {strategy: always, vm: requesting(stop, start), vmi: vmi(virtv1.Running), wanted: true, goes: true, recorded: always},
		"rerun, to be stopped":         {strategy: rerun, before: rerun, vm: requesting(stop), vmi: vmi(virtv1.Running), goes: true, recorded: rerun},
		"rerun, failed while stopped":  {strategy: rerun, before: rerun, vm: requesting(stop), vmi: vmi(virtv1.Failed), goes: true, recorded: rerun},
		"rerun, stopped":               {strategy: rerun, before: rerun, vm: requesting(stop), recorded: rerun},
		"rerun, done, to be started":   {strategy: rerun, before: rerun, vm: requesting(stop, start), vmi: vmi(virtv1.Succeeded), goes: true, recorded: rerun},
		"once, to be stopped":          {strategy: once, before: once, vm: requesting(stop), vmi: vmi(virtv1.Running), goes: true, recorded: once},
		"manual, new":                  {strategy: manual, recorded: manual},
		"manual, to be started":        {strategy: manual, vm: asked(), wanted: true, asks: true, recorded: manual},
		"manual, running":              {strategy: manual, before: manual, vm: asked(), vmi: vmi(virtv1.Running), wanted: true, recorded: manual},
		"manual, another to be ended":  {strategy: manual, before: manual, vm: requesting(stopOther), vmi: vmi(virtv1.Running), wanted: true, recorded: manual},
		"manual, to be stopped":        {strategy: manual, before: manual, vm: requesting(stop), vmi: vmi(virtv1.Running), goes: true, recorded: manual},
		"manual, to be restarted":      {strategy: manual, before: manual, vm: requesting(stop, start), vmi: vmi(virtv1.Running), goes: true, recorded: manual},
		"manual, stopped for restart":  {strategy: manual, before: manual, vm: requesting(stop, start), wanted: true, asks: true, recorded: manual},
		"manual, powered off":          {strategy: manual, before: manual, vmi: vmi(virtv1.Succeeded), recorded: manual},
		"manual, failed":               {strategy: manual, before: manual, vmi: vmi(virtv1.Failed), recorded: manual},
		"manual, ended, to be started": {strategy: manual, before: manual, vm: asked(), vmi: vmi(virtv1.Failed), wanted: true, goes: true, asks: true, recorded: manual},
		"halted, to be started":        {strategy: halted, vm: asked(), recorded: halted},
		"halted, to be started paused": {strategy: halted, vm: requesting(startPaused), wanted: true, asks: true, recorded: halted},
		"halted while to be restarted": {strategy: halted, vm: requesting(stop, start), vmi: vmi(virtv1.Running), goes: true, recorded: halted},
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
			s.requests = s.pending()
			if got := s.wanted(); got != c.wanted {
				t.Errorf("wanted: %v", got)
			}
			if c.vmi != nil && c.vmi.DeletionTimestamp == nil {
				if got := s.mustGo(); got != c.goes {
					t.Errorf("its VMI must go: %v", got)
				}
			}
			if got := s.startRequest() != nil; got != c.asks {
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
	if _, err := strategyOf(&virtv1.VirtualMachine{Spec: virtv1.VirtualMachineSpec{RunStrategy: new(virtv1.RunStrategyWaitAsReceiver)}}); err == nil {
		t.Error("WaitAsReceiver passed as acted on")
	}
}
