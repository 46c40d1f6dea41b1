package subresource

import (
	"encoding/json"
	"errors"
	"fmt"

	"k8s.io/apimachinery/pkg/api/equality"
	virtv1 "kubevirt.io/api/core/v1"
)

// patch is a JSON patch that tests what it was made for: of two clients one wins.
type patch []map[string]any

func (p patch) test(path string, value any) patch {
	return append(p, map[string]any{"op": "test", "path": path, "value": value})
}

// add adds a field, or replaces it where it is there.
func (p patch) add(path string, value any) patch {
	return append(p, map[string]any{"op": "add", "path": path, "value": value})
}

func (p patch) remove(path string) patch {
	return append(p, map[string]any{"op": "remove", "path": path})
}

func (p patch) encode() ([]byte, error) {
	content, err := json.Marshal(p)
	if err != nil {
		return nil, fmt.Errorf("encoding a patch: %w", err)
	}
	return content, nil
}

// runningPatch makes vm run or stop by its spec, in whichever of the two fields it says so.
func runningPatch(vm *virtv1.VirtualMachine, running bool) patch {
	if vm.Spec.RunStrategy == nil {
		return patch{}.test("/spec/running", vm.Spec.Running).add("/spec/running", running)
	}
	strategy := virtv1.RunStrategyHalted
	if running {
		strategy = virtv1.RunStrategyAlways
	}
	return patch{}.test("/spec/runStrategy", vm.Spec.RunStrategy).add("/spec/runStrategy", strategy)
}

// requestPatch asks virt-controller for changes, by vm's status. Only a stop takes the place of
// what was asked before. A failure to start counts no longer.
func requestPatch(vm *virtv1.VirtualMachine, changes ...virtv1.VirtualMachineStateChangeRequest) (patch, error) {
	if equality.Semantic.DeepEqual(vm.Status, virtv1.VirtualMachineStatus{}) {
		return patch{}.test("/metadata/resourceVersion", vm.ResourceVersion).
			add("/status", virtv1.VirtualMachineStatus{StateChangeRequests: changes}), nil
	}
	before := vm.Status.StateChangeRequests
	stop := len(changes) == 1 && changes[0].Action == virtv1.StopRequest
	if len(before) > 0 && !stop {
		return nil, errors.New(alreadyUnderway)
	}
	p := patch{}.test("/status/stateChangeRequests", before).add("/status/stateChangeRequests", changes)
	if vm.Status.StartFailure != nil {
		p = p.remove("/status/startFailure")
	}
	return p, nil
}
