// Package vmlife starts, stops and deletes VirtualMachines for the tasks that do so,
// and waits for the effect by watching.
package vmlife

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	virtv1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-vm/slipway/internal/await"
)

// errWait is what the field's clients look for when a wait of a task takes too long.
var errWait = errors.New("timed out waiting for the condition")

// Rules are the verbs that this package uses, with delete only for those who delete.
func Rules(deletes bool) []rbacv1.PolicyRule {
	machines, instances := []string{"get", "patch"}, []string{"list", "watch"}
	if deletes {
		machines = []string{"get", "list", "watch", "patch", "delete"}
	}
	return []rbacv1.PolicyRule{
		{APIGroups: []string{"kubevirt.io"}, Resources: []string{"virtualmachines"}, Verbs: machines},
		{APIGroups: []string{"kubevirt.io"}, Resources: []string{"virtualmachineinstances"}, Verbs: instances},
	}
}

// VM is a VirtualMachine that a task works on.
type VM struct {
	Client client.WithWatch
	Key    client.ObjectKey
	Log    *slog.Logger
}

// Get reads the VM. One that does not exist is an error in the words that the field's clients know.
func (v *VM) Get(ctx context.Context) (*virtv1.VirtualMachine, error) {
	vm := &virtv1.VirtualMachine{}
	err := v.Client.Get(ctx, v.Key, vm)
	if apierrors.IsNotFound(err) {
		err = apierrors.NewNotFound(schema.GroupResource{Group: "kubevirt.io", Resource: "virtualmachine"}, v.Key.Name)
	}
	if err != nil {
		return nil, fmt.Errorf("getting VirtualMachine %s: %w", v.Key, err)
	}
	return vm, nil
}

// Start makes the VM run, when it does not, and returns its instance once that runs and has an
// address on the pod network. When ctx ends before, the error says what it waited for.
func (v *VM) Start(ctx context.Context) (*virtv1.VirtualMachineInstance, error) {
	vm, err := v.Get(ctx)
	if err != nil {
		return nil, err
	}
	strategy, err := vm.RunStrategy()
	if err != nil {
		return nil, fmt.Errorf("reading how VirtualMachine %s runs: %w", v.Key, err)
	}
	if strategy == virtv1.RunStrategyHalted {
		v.Log.Info("starting VirtualMachine", "name", v.Key.String())
		if err := v.setStrategy(ctx, vm, virtv1.RunStrategyAlways); err != nil {
			return nil, err
		}
	}
	s := &start{vm: v, strategy: strategy, begins: begins(vm, strategy), last: "that there is a VirtualMachineInstance"}
	err = await.Object(ctx, v.Client, &virtv1.VirtualMachineInstanceList{}, v.Key, s.check)
	if err != nil && ctx.Err() != nil {
		return nil, fmt.Errorf("starting VirtualMachine %s: %w: waited for %s", v.Key, errWait, s.last)
	}
	if err != nil {
		return nil, fmt.Errorf("starting VirtualMachine %s: %w", v.Key, err)
	}
	return s.running, nil
}

// start follows the instance of a VM that starts.
type start struct {
	vm       *VM
	strategy virtv1.VirtualMachineRunStrategy
	// begins says that the VM starts by itself when it has no instance.
	begins  bool
	running *virtv1.VirtualMachineInstance
	// last is what the wait waits for.
	last string
}

func (s *start) check(vmi *virtv1.VirtualMachineInstance, exists bool) (bool, error) {
	switch {
	case !exists && !s.begins:
		return false, fmt.Errorf("it does not run, and with runStrategy %s it does not start again by itself: %s", s.strategy, startItFirst)
	case !exists:
		return false, nil
	case vmi.IsFinal() && vmi.DeletionTimestamp == nil && !restarts(s.strategy, vmi.Status.Phase):
		return false, fmt.Errorf("its VirtualMachineInstance ended in phase %s, and with runStrategy %s it does not start again by itself: %s", vmi.Status.Phase, s.strategy, startItFirst)
	}
	next := "its VirtualMachineInstance to run; it is " + describe(vmi)
	if vmi.Status.Phase == virtv1.Running {
		next = "an address of its VirtualMachineInstance on the pod network; it has none"
	}
	if next != s.last {
		s.last = next
		s.vm.Log.Info("waiting for "+next, "name", s.vm.Key.String())
	}
	s.running = vmi
	return vmi.Status.Phase == virtv1.Running && vmi.DeletionTimestamp == nil && Address(vmi) != "", nil
}

// startItFirst is what to do about a VM that only its user starts.
const startItFirst = "start it first, for example with virtctl start, or let it run Always"

// begins says whether a VM without an instance gets one by itself, or by what this package did.
func begins(vm *virtv1.VirtualMachine, strategy virtv1.VirtualMachineRunStrategy) bool {
	switch strategy {
	case virtv1.RunStrategyManual:
		return startRequested(vm)
	case virtv1.RunStrategyOnce, virtv1.RunStrategyRerunOnFailure: // once, since it took this strategy
		return vm.Status.RunStrategy != strategy || startRequested(vm)
	}
	return true
}

func startRequested(vm *virtv1.VirtualMachine) bool {
	for _, request := range vm.Status.StateChangeRequests {
		if request.Action == virtv1.StartRequest {
			return true
		}
	}
	return false
}

// restarts says whether a VM of this strategy, whose instance ended in the phase, gets another one.
func restarts(strategy virtv1.VirtualMachineRunStrategy, ended virtv1.VirtualMachineInstancePhase) bool {
	switch strategy {
	case virtv1.RunStrategyManual, virtv1.RunStrategyOnce:
		return false
	case virtv1.RunStrategyRerunOnFailure:
		return ended == virtv1.Failed
	}
	return true
}

// describe says in a few words what an instance is like.
func describe(vmi *virtv1.VirtualMachineInstance) string {
	text := "in phase " + string(vmi.Status.Phase)
	if vmi.Status.Phase == virtv1.VmPhaseUnset {
		text = "without a phase"
	}
	for _, c := range vmi.Status.Conditions {
		if c.Message != "" {
			text += fmt.Sprintf(", %s=%s (%s: %s)", c.Type, c.Status, c.Reason, c.Message)
		}
	}
	return text
}

// Address returns the instance's address on the pod network, or "".
func Address(vmi *virtv1.VirtualMachineInstance) string {
	pod := ""
	for _, network := range vmi.Spec.Networks {
		if network.Pod != nil {
			pod = network.Name
		}
	}
	for _, iface := range vmi.Status.Interfaces {
		if iface.Name == pod && pod != "" {
			return iface.IP
		}
	}
	return ""
}

// Stop halts the VM and waits until its instance is gone. A VM that does not exist is an error.
func (v *VM) Stop(ctx context.Context) error {
	vm, err := v.Get(ctx)
	if err != nil {
		return fmt.Errorf("stopping it: %w", err)
	}
	if strategy, err := vm.RunStrategy(); err != nil || strategy != virtv1.RunStrategyHalted {
		v.Log.Info("stopping VirtualMachine", "name", v.Key.String())
		if err := v.setStrategy(ctx, vm, virtv1.RunStrategyHalted); err != nil {
			return err
		}
	}
	return v.gone(ctx)
}

// Delete deletes the VM and waits until it and its instance are gone; one that is gone already is no error.
func (v *VM) Delete(ctx context.Context) error {
	v.Log.Info("deleting VirtualMachine", "name", v.Key.String())
	vm := &virtv1.VirtualMachine{ObjectMeta: metav1.ObjectMeta{Namespace: v.Key.Namespace, Name: v.Key.Name}}
	err := v.Client.Delete(ctx, vm, client.PropagationPolicy(metav1.DeletePropagationForeground))
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("deleting VirtualMachine %s: %w", v.Key, err)
	}
	if err := v.gone(ctx); err != nil {
		return err
	}
	err = await.Object(ctx, v.Client, &virtv1.VirtualMachineList{}, v.Key,
		func(_ *virtv1.VirtualMachine, exists bool) (bool, error) { return !exists, nil })
	return v.stillThere(ctx, "VirtualMachine", err)
}

func (v *VM) gone(ctx context.Context) error {
	err := await.Object(ctx, v.Client, &virtv1.VirtualMachineInstanceList{}, v.Key,
		func(_ *virtv1.VirtualMachineInstance, exists bool) (bool, error) { return !exists, nil })
	return v.stillThere(ctx, "VirtualMachineInstance", err)
}

func (v *VM) stillThere(ctx context.Context, kind string, err error) error {
	if err != nil && ctx.Err() != nil {
		return fmt.Errorf("%w: waited until %s %s is gone; it is still there", errWait, kind, v.Key)
	}
	if err != nil {
		return fmt.Errorf("waiting until %s %s is gone: %w", kind, v.Key, err)
	}
	return nil
}

// setStrategy changes how the VM runs, in the field that it uses, unless it was replaced meanwhile.
func (v *VM) setStrategy(ctx context.Context, vm *virtv1.VirtualMachine, strategy virtv1.VirtualMachineRunStrategy) error {
	spec := map[string]any{"runStrategy": strategy}
	if vm.Spec.Running != nil {
		spec = map[string]any{"running": strategy == virtv1.RunStrategyAlways}
	}
	if err := v.patch(ctx, vm, map[string]any{"metadata": map[string]any{"uid": vm.UID}, "spec": spec}); err != nil {
		return fmt.Errorf("changing VirtualMachine %s to %s: %w", v.Key, strategy, err)
	}
	return nil
}

// Mark puts an annotation on the VM.
func (v *VM) Mark(ctx context.Context, vm *virtv1.VirtualMachine, annotation, value string) error {
	metadata := map[string]any{"uid": vm.UID, "annotations": map[string]string{annotation: value}}
	if err := v.patch(ctx, vm, map[string]any{"metadata": metadata}); err != nil {
		return fmt.Errorf("marking VirtualMachine %s: %w", v.Key, err)
	}
	return nil
}

func (v *VM) patch(ctx context.Context, vm *virtv1.VirtualMachine, change map[string]any) error {
	data, err := json.Marshal(change)
	if err != nil {
		return fmt.Errorf("encoding the patch: %w", err)
	}
	err = v.Client.Patch(ctx, vm, client.RawPatch(types.MergePatchType, data))
	if apierrors.IsConflict(err) {
		return errors.New("it was replaced by another of its name; run the task again")
	}
	return err //nolint:wrapcheck // the callers say what they change
}
