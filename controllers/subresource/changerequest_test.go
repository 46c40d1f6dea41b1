package subresource

import (
	"testing"

	"k8s.io/apimachinery/pkg/types"
	virtv1 "kubevirt.io/api/core/v1"
)

func TestRequestsTestWhatTheyReplace(t *testing.T) {
	uid := types.UID("7")
	begin := virtv1.VirtualMachineStateChangeRequest{Action: virtv1.StartRequest}
	end := virtv1.VirtualMachineStateChangeRequest{Action: virtv1.StopRequest, UID: &uid}
	paused := virtv1.VirtualMachineStateChangeRequest{Action: virtv1.StartRequest, Data: map[string]string{"paused": "true"}}
	for name, c := range map[string]struct {
		status  virtv1.VirtualMachineStatus
		changes []virtv1.VirtualMachineStateChangeRequest
		want    string
	}{
		"a VM that nobody has looked at": {
			virtv1.VirtualMachineStatus{}, []virtv1.VirtualMachineStateChangeRequest{begin},
			`[{"op":"test","path":"/metadata/resourceVersion","value":"5"},` +
				`{"op":"add","path":"/status","value":{"stateChangeRequests":[{"action":"Start"}]}}]`,
		},
		"a paused start": {
			virtv1.VirtualMachineStatus{Created: true}, []virtv1.VirtualMachineStateChangeRequest{paused},
			`[{"op":"test","path":"/status/stateChangeRequests","value":null},` +
				`{"op":"add","path":"/status/stateChangeRequests","value":[{"action":"Start","data":{"paused":"true"}}]}]`,
		},
		"a restart forgets failed starts": {
			virtv1.VirtualMachineStatus{StartFailure: &virtv1.VirtualMachineStartFailure{}}, []virtv1.VirtualMachineStateChangeRequest{end, begin},
			`[{"op":"test","path":"/status/stateChangeRequests","value":null},` +
				`{"op":"add","path":"/status/stateChangeRequests","value":[{"action":"Stop","uid":"7"},{"action":"Start"}]},` +
				`{"op":"remove","path":"/status/startFailure"}]`,
		},
		"a stop replaces what was asked": {
			virtv1.VirtualMachineStatus{StateChangeRequests: []virtv1.VirtualMachineStateChangeRequest{begin}}, []virtv1.VirtualMachineStateChangeRequest{end},
			`[{"op":"test","path":"/status/stateChangeRequests","value":[{"action":"Start"}]},` +
				`{"op":"add","path":"/status/stateChangeRequests","value":[{"action":"Stop","uid":"7"}]}]`,
		},
		"a start does not": {
			virtv1.VirtualMachineStatus{StateChangeRequests: []virtv1.VirtualMachineStateChangeRequest{end}}, []virtv1.VirtualMachineStateChangeRequest{begin},
			alreadyUnderway,
		},
	} {
		t.Run(name, func(t *testing.T) {
			vm := &virtv1.VirtualMachine{Status: c.status}
			vm.ResourceVersion = "5"
			got := ""
			p, err := requestPatch(vm, c.changes...)
			if err != nil {
				got = err.Error()
			} else if content, err := p.encode(); err != nil {
				t.Fatal(err)
			} else {
				got = string(content)
			}
			if got != c.want {
				t.Errorf("got  %s\nwant %s", got, c.want)
			}
		})
	}
}

func TestSpecSaysItInTheFieldThatTheUserChose(t *testing.T) {
	always, running := virtv1.RunStrategyAlways, false
	for name, c := range map[string]struct {
		spec    virtv1.VirtualMachineSpec
		running bool
		want    string
	}{
		"by strategy": {virtv1.VirtualMachineSpec{RunStrategy: &always}, false, `[{"op":"test","path":"/spec/runStrategy","value":"Always"},{"op":"add","path":"/spec/runStrategy","value":"Halted"}]`},
		"by running":  {virtv1.VirtualMachineSpec{Running: &running}, true, `[{"op":"test","path":"/spec/running","value":false},{"op":"add","path":"/spec/running","value":true}]`},
	} {
		t.Run(name, func(t *testing.T) {
			content, err := runningPatch(&virtv1.VirtualMachine{Spec: c.spec}, c.running).encode()
			if err != nil || string(content) != c.want {
				t.Errorf("got %s, %v", content, err)
			}
		})
	}
}
