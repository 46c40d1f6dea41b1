package virtualmachine

import (
	"testing"

	virtv1 "kubevirt.io/api/core/v1"
)

func TestRequestsAreDoneOneAfterTheOther(t *testing.T) {
	type requests = []virtv1.VirtualMachineStateChangeRequest
	for name, c := range map[string]struct {
		requests, want requests
		vmi            *virtv1.VirtualMachineInstance
	}{
		"none":                                   {nil, nil, vmi(virtv1.Running)},
		"a stop of what runs":                    {requests{stop}, requests{stop}, vmi(virtv1.Running)},
		"a stop of what is being stopped":        {requests{stop, start}, requests{stop, start}, deleted(vmi(virtv1.Running))},
		"a stop of what ended":                   {requests{stop}, requests{stop}, vmi(virtv1.Succeeded)},
		"a stop of what has gone":                {requests{stop}, nil, nil},
		"a stop of what was there before":        {requests{stopOther}, nil, vmi(virtv1.Running)},
		"a stop of nothing":                      {requests{stopNone}, nil, vmi(virtv1.Running)},
		"the start after a stop":                 {requests{stop, start}, requests{start}, nil},
		"a restart that is over":                 {requests{stopOther, start}, nil, vmi(virtv1.Pending)},
		"a start":                                {requests{start}, requests{start}, nil},
		"a start of what is being started":       {requests{start}, nil, vmi(virtv1.VmPhaseUnset)},
		"a start after what ended":               {requests{start}, requests{start}, vmi(virtv1.Failed)},
		"a start while the last is deleted":      {requests{start}, requests{start}, deleted(vmi(virtv1.Running))},
		"a start before a stop of what comes":    {requests{start, stop}, requests{start, stop}, nil},
		"a start that is over, and a stop":       {requests{start, stop}, requests{stop}, vmi(virtv1.Running)},
		"a request that nobody knows, and a few": {requests{{Action: "Rename"}, start}, requests{start}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			if got := undone(c.requests, c.vmi); !equalRequests(got, c.want) {
				t.Errorf("left are %+v, want %+v", got, c.want)
			}
		})
	}
}

func TestAFailureUnderRerunOnFailureRequestsAStart(t *testing.T) {
	for name, c := range map[string]struct {
		vm   *virtv1.VirtualMachine
		vmi  *virtv1.VirtualMachineInstance
		want []virtv1.VirtualMachineStateChangeRequest
	}{
		"failed":                     {requesting(), vmi(virtv1.Failed), asked().Status.StateChangeRequests},
		"failed, requested already":  {asked(), vmi(virtv1.Failed), asked().Status.StateChangeRequests},
		"powered off":                {requesting(), vmi(virtv1.Succeeded), nil},
		"failed, and somebody stops": {requesting(stop), vmi(virtv1.Failed), requesting(stop).Status.StateChangeRequests},
		"failed, and was deleted":    {requesting(), deleted(vmi(virtv1.Failed)), nil},
	} {
		t.Run(name, func(t *testing.T) {
			s := scope{vm: c.vm, vmi: c.vmi, strategy: strategy{startsOnce: true, startsFailed: true}}
			if got := s.pending(); !equalRequests(got, c.want) {
				t.Errorf("requested are %+v, want %+v", got, c.want)
			}
		})
	}
}
