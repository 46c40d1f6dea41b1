package subresource

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	virtv1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-vm/slipway/internal/names"
)

// undoBound is how long it may take to take back half of a refused request.
const undoBound = 10 * time.Second

// stop ends a VM's run.
func (s *Server) stop(w http.ResponseWriter, r *http.Request) error {
	options := &virtv1.StopOptions{}
	if err := decode(r, options); err != nil {
		return err
	}
	vm, err := s.virtualMachine(r.Context(), key(r))
	if err != nil {
		return err
	}
	strategy, err := vm.RunStrategy()
	if err != nil {
		return fmt.Errorf("reading the run strategy: %w", err)
	}
	vmi, err := s.instanceIfAny(r.Context(), key(r))
	if err != nil {
		return err
	}
	runs := vmi != nil && !vmi.IsFinal()
	bySpec := strategy == virtv1.RunStrategyAlways || strategy == virtv1.RunStrategyOnce
	switch {
	case !runs && !bySpec:
		return conflict(kindVM, vm.Name, vmNotRunning)
	case strategy == virtv1.RunStrategyHalted && !shorter(vmi, options.GracePeriod):
		return conflict(kindVM, vm.Name, "%v only supports manual stop requests with a shorter graceperiod", strategy)
	}
	end := func(ctx context.Context) error {
		if bySpec {
			return s.patchSpec(ctx, vm, options.DryRun, runningPatch(vm, false))
		}
		return s.request(ctx, vm, options.DryRun, stopOf(vmi))
	}
	if runs && options.GracePeriod != nil {
		return accepted(w, s.endWithin(r.Context(), vmi, options, end))
	}
	return accepted(w, end(r.Context()))
}

// endWithin ends the run of vmi in the grace period of options, which must be there before
// it ends. A guest whose stop is refused has the one that it had.
func (s *Server) endWithin(ctx context.Context, vmi *virtv1.VirtualMachineInstance, options *virtv1.StopOptions, end func(context.Context) error) error {
	if *options.GracePeriod < 0 {
		return badRequest("gracePeriod has to be greater or equal to 0")
	}
	before := vmi.Spec.TerminationGracePeriodSeconds
	if err := s.setGracePeriod(ctx, vmi, before, options.GracePeriod, options.DryRun); err != nil {
		return err
	}
	err := end(ctx)
	if err == nil || len(options.DryRun) > 0 {
		return err
	}
	// Also for a client that does not wait any longer.
	again, cancel := context.WithTimeout(context.WithoutCancel(ctx), undoBound)
	defer cancel()
	failure := s.setGracePeriod(again, vmi, options.GracePeriod, before, nil)
	if _, others := errors.AsType[*refusal](failure); failure == nil || others || apierrors.IsNotFound(failure) { // it is given back, or somebody else's by now, or gone
		return err
	}
	return fmt.Errorf("%s; VirtualMachineInstance %s keeps the gracePeriod of the refused request: %w", err.Error(), vmi.Name, failure)
}

// shorter says whether grace ends vmi's run sooner than it would end anyway.
func shorter(vmi *virtv1.VirtualMachineInstance, grace *int64) bool {
	before := vmi.Spec.TerminationGracePeriodSeconds
	return grace != nil && (before == nil || *grace < *before)
}

// setGracePeriod gives a running guest another time to shut down in; nil for none of its own.
func (s *Server) setGracePeriod(ctx context.Context, vmi *virtv1.VirtualMachineInstance, before, after *int64, dryRun []string) error {
	const path = "/spec/terminationGracePeriodSeconds"
	change := patch{}.test(path, before)
	if after == nil {
		change = change.remove(path)
	} else {
		change = change.add(path, *after)
	}
	content, err := change.encode()
	if err != nil {
		return err
	}
	err = s.client.Patch(ctx, vmi.DeepCopy(), client.RawPatch(types.JSONPatchType, content), &client.PatchOptions{DryRun: dryRun, FieldManager: names.ManagerAPI})
	return patched(kindVMI, vmi.Name, err)
}
