package vmlife

import (
	"log/slog"
	"strings"
	"testing"

	virtv1 "kubevirt.io/api/core/v1"
)

// A VM that starts by itself is waited for; for one that does not, the error says what to do.
func TestWhoStartsByItself(t *testing.T) {
	requested := []virtv1.VirtualMachineStateChangeRequest{{Action: virtv1.StartRequest}}
	for name, c := range map[string]struct {
		strategy, hadRun virtv1.VirtualMachineRunStrategy
		requests         []virtv1.VirtualMachineStateChangeRequest
		ended            virtv1.VirtualMachineInstancePhase // empty for no instance
		want             string
	}{
		"always":                              {strategy: virtv1.RunStrategyAlways},
		"always, ended":                       {strategy: virtv1.RunStrategyAlways, ended: virtv1.Succeeded},
		"halted, made to run":                 {strategy: virtv1.RunStrategyHalted},
		"once, new":                           {strategy: virtv1.RunStrategyOnce},
		"once, has run":                       {strategy: virtv1.RunStrategyOnce, hadRun: virtv1.RunStrategyOnce, want: "with runStrategy Once it does not start again by itself: start it first"},
		"once, failed":                        {strategy: virtv1.RunStrategyOnce, ended: virtv1.Failed, want: "ended in phase Failed, and with runStrategy Once"},
		"reruns on failure, new":              {strategy: virtv1.RunStrategyRerunOnFailure},
		"reruns on failure, failed":           {strategy: virtv1.RunStrategyRerunOnFailure, ended: virtv1.Failed},
		"reruns on failure, failed and gone":  {strategy: virtv1.RunStrategyRerunOnFailure, hadRun: virtv1.RunStrategyRerunOnFailure, requests: requested},
		"reruns on failure, done":             {strategy: virtv1.RunStrategyRerunOnFailure, ended: virtv1.Succeeded, want: "ended in phase Succeeded, and with runStrategy RerunOnFailure"},
		"reruns on failure, done and gone":    {strategy: virtv1.RunStrategyRerunOnFailure, hadRun: virtv1.RunStrategyRerunOnFailure, want: "it does not run, and with runStrategy RerunOnFailure"},
		"manual":                              {strategy: virtv1.RunStrategyManual, want: "or let it run Always"},
		"manual, about to be started by hand": {strategy: virtv1.RunStrategyManual, requests: requested},
		"manual, failed":                      {strategy: virtv1.RunStrategyManual, ended: virtv1.Failed, want: "ended in phase Failed, and with runStrategy Manual"},
	} {
		t.Run(name, func(t *testing.T) {
			vm := &virtv1.VirtualMachine{}
			vm.Status.RunStrategy, vm.Status.StateChangeRequests = c.hadRun, c.requests
			s := &start{vm: &VM{Log: slog.New(slog.DiscardHandler)}, strategy: c.strategy, begins: begins(vm, c.strategy)}
			vmi := &virtv1.VirtualMachineInstance{}
			vmi.Status.Phase = c.ended
			done, err := s.check(vmi, c.ended != "")
			if done || (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
				t.Errorf("%t, %v; want %q", done, err, c.want)
			}
		})
	}
}
