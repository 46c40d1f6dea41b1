package virtualmachine

import (
	"context"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	virtv1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-vm/slipway/internal/names"
)

// status.stateChangeRequests says what virt-api was asked to do with the VM, and under
// RerunOnFailure that a failed VMI is to be replaced. Only the first request counts; the
// next one does when that is done, so that a Stop and a Start make a restart.

// readRequests finds what is left to do of the VM's requests. A cache may be behind who
// made a request: a VMI that it does not show is looked for past it before a Stop of that
// VMI is taken for done.
func (r *Reconciler) readRequests(ctx context.Context, s *scope) error {
	if uid := stops(s.vm.Status.StateChangeRequests); uid != "" && (s.vmi == nil || s.vmi.UID != uid) {
		if err := r.readInstance(ctx, s); err != nil {
			return err
		}
	}
	s.requests = s.pending()
	return nil
}

// stops returns the uid of the VMI that the first of requests stops, or "".
func stops(requests []virtv1.VirtualMachineStateChangeRequest) types.UID {
	if len(requests) == 0 || requests[0].Action != virtv1.StopRequest || requests[0].UID == nil {
		return ""
	}
	return *requests[0].UID
}

// pending are the requests in the VM's status that are not done, and the start of a VM
// whose VMI failed, where its strategy has it so.
func (s *scope) pending() []virtv1.VirtualMachineStateChangeRequest {
	left := s.vm.Status.StateChangeRequests
	if s.strategy.halts {
		// A halted VM starts by a change of its strategy, but for a start that says more
		// than that: it is let run then. Any other is left from an earlier strategy.
		left = slices.DeleteFunc(slices.Clone(left), func(request virtv1.VirtualMachineStateChangeRequest) bool {
			return request.Action == virtv1.StartRequest && !startsPaused(request)
		})
	}
	left = undone(left, s.vmi)
	if len(left) == 0 && s.failedAndStartsAgain() {
		return []virtv1.VirtualMachineStateChangeRequest{{Action: virtv1.StartRequest}}
	}
	return left
}

func (s *scope) failedAndStartsAgain() bool {
	return s.strategy.startsFailed && s.vmi != nil && s.vmi.DeletionTimestamp == nil && s.vmi.Status.Phase == virtv1.Failed
}

// undone returns requests from the first one on that vmi, which may be nil, does not show
// to be done.
func undone(requests []virtv1.VirtualMachineStateChangeRequest, vmi *virtv1.VirtualMachineInstance) []virtv1.VirtualMachineStateChangeRequest {
	for i, request := range requests {
		if !done(request, vmi) {
			return requests[i:]
		}
	}
	return nil
}

func done(request virtv1.VirtualMachineStateChangeRequest, vmi *virtv1.VirtualMachineInstance) bool {
	switch request.Action {
	case virtv1.StopRequest: // of a VMI; one that names none can stop none
		return vmi == nil || request.UID == nil || *request.UID != vmi.UID
	case virtv1.StartRequest:
		return vmi != nil && vmi.DeletionTimestamp == nil && !vmi.IsFinal()
	}
	return true // nobody knows it
}

// startRequest is the start that is to be made next; nil when there is none.
func (s *scope) startRequest() *virtv1.VirtualMachineStateChangeRequest {
	if len(s.requests) == 0 || s.requests[0].Action != virtv1.StartRequest {
		return nil
	}
	return &s.requests[0]
}

// stopRequested says whether the VM's VMI is to be stopped by a request.
func (s *scope) stopRequested() bool {
	uid := stops(s.requests)
	return uid != "" && s.vmi != nil && s.vmi.UID == uid
}

func startsPaused(request virtv1.VirtualMachineStateChangeRequest) bool {
	return request.Data[virtv1.StartRequestDataPausedKey] == virtv1.StartRequestDataPausedTrue
}

// letRun gives a halted VM that is to be started the strategy Always. The start itself is
// the next pass's.
func (r *Reconciler) letRun(ctx context.Context, s *scope) error {
	changed := s.vm.DeepCopy()
	if changed.Spec.Running != nil {
		changed.Spec.Running = new(true)
	} else {
		changed.Spec.RunStrategy = new(virtv1.RunStrategyAlways)
	}
	return r.patch(ctx, changed, s.vm)
}

// writeRequests writes what is left of the requests after the pass. They have two
// writers, so they are no part of what is applied: whoever has read an older list fails,
// and reads again.
func (r *Reconciler) writeRequests(ctx context.Context, s *scope) error {
	left := undone(s.requests, s.vmi)
	if s.vm.DeletionTimestamp != nil || equalRequests(left, s.vm.Status.StateChangeRequests) {
		return nil
	}
	changed := s.vm.DeepCopy()
	changed.Status.StateChangeRequests = left
	patch := client.MergeFromWithOptions(s.vm, client.MergeFromWithOptimisticLock{})
	err := r.Status().Patch(ctx, changed, patch, client.FieldOwner(names.ManagerController))
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("writing the state change requests of VirtualMachine %s/%s: %w", s.vm.Namespace, s.vm.Name, err)
	}
	if err == nil {
		s.vm.ResourceVersion = changed.ResourceVersion
	}
	return nil
}

func equalRequests(a, b []virtv1.VirtualMachineStateChangeRequest) bool {
	return equality.Semantic.DeepEqual(a, b)
}
