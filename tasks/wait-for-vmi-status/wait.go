package waitforvmistatus

import (
	"context"
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation"
	virtv1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-vm/slipway/internal/await"
	"github.com/slipway-vm/slipway/tasks/declare"
)

// wait is one wait for one VirtualMachineInstance.
type wait struct {
	call             *declare.Call
	key              client.ObjectKey
	success, failure condition
	// owned says that the instance that was seen last is one of a VirtualMachine.
	seen, owned bool
	// phase is that in which it was seen last.
	phase virtv1.VirtualMachineInstancePhase
	// last says what the object was like when it was last seen.
	last string
}

func newWait(call *declare.Call) (*wait, error) {
	w := &wait{call: call, key: client.ObjectKey{Namespace: call.NamespaceOr("vmiNamespace"), Name: call.Name("vmiName")}, last: "nowhere: it does not exist"}
	if w.key.Name == "" {
		return nil, errors.New("vmi-name should not be empty")
	}
	for _, named := range []struct{ what, name string }{{"vmi-name", w.key.Name}, {"vmi-namespace", call.Name("vmiNamespace")}} {
		if problems := validation.IsDNS1123Subdomain(named.name); named.name != "" && len(problems) > 0 {
			return nil, fmt.Errorf("invalid %s value: %s", named.what, problems[0])
		}
	}
	var err error
	if w.success, err = parse(call.String("successCondition")); err != nil {
		return nil, fmt.Errorf("success-condition: %w", err)
	}
	if w.failure, err = parse(call.String("failureCondition")); err != nil {
		return nil, fmt.Errorf("failure-condition: %w", err)
	}
	return w, nil
}

// until waits until one of the conditions holds.
func (w *wait) until(ctx context.Context) error {
	w.call.Log.Info("waiting for VirtualMachineInstance", "name", w.key.String(),
		"successCondition", w.call.String("successCondition"), "failureCondition", w.call.String("failureCondition"))
	err := await.Object(ctx, w.call.Client, &virtv1.VirtualMachineInstanceList{}, w.key,
		func(vmi *virtv1.VirtualMachineInstance, exists bool) (bool, error) { return w.check(ctx, vmi, exists) })
	if err != nil && errors.Is(context.Cause(ctx), errTimeout) {
		return declare.Coded(codeTimeout, fmt.Errorf("%w: VirtualMachineInstance %s was last seen %s", errTimeout, w.key, w.last))
	}
	return err
}

func (w *wait) check(ctx context.Context, vmi *virtv1.VirtualMachineInstance, exists bool) (bool, error) {
	if !exists {
		return false, w.gone(ctx)
	}
	w.seen, w.owned, w.phase = true, metav1.GetControllerOf(vmi) != nil, vmi.Status.Phase
	if last := describe(vmi); last != w.last {
		w.call.Log.Info("VirtualMachineInstance is "+last, "name", w.key.String())
		w.last = last
	}
	tree, err := runtime.DefaultUnstructuredConverter.ToUnstructured(vmi)
	if err != nil {
		return false, fmt.Errorf("reading VirtualMachineInstance %s: %w", w.key, err)
	}
	if met, err := holds(w.success, tree); met || err != nil {
		return met, err
	}
	met, err := holds(w.failure, tree)
	if met {
		err = declare.Coded(codeFailureCondition, fmt.Errorf("failure condition %q was met by VirtualMachineInstance %s, which is %s", w.call.String("failureCondition"), w.key, w.last))
	}
	return false, err
}

// holds asks a condition; none never holds, and one that cannot be asked is the user's to mend.
func holds(c condition, tree map[string]any) (bool, error) {
	if c == nil {
		return false, nil
	}
	met, err := c.holds(tree)
	return met, declare.Coded(declare.CodeUsage, err)
}

// gone is an error when the instance that was seen is gone and no other comes in its place.
func (w *wait) gone(ctx context.Context) error {
	if !w.seen {
		return nil
	}
	deleted := declare.Coded(codeFailureCondition, fmt.Errorf("VirtualMachineInstance %s was deleted; it was last seen %s", w.key, w.last))
	if !w.owned {
		return deleted
	}
	vm := &virtv1.VirtualMachine{}
	err := w.call.Client.Get(ctx, w.key, vm)
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("asking whether VirtualMachine %s starts again: %w", w.key, err)
	}
	if err != nil || vm.DeletionTimestamp != nil || !w.startsAgain(vm) {
		return deleted
	}
	w.seen = false
	w.call.Log.Info("VirtualMachineInstance was deleted; its VirtualMachine makes another", "name", w.key.String())
	return nil
}

// startsAgain says whether vm makes another instance in the place of the one that was seen last.
func (w *wait) startsAgain(vm *virtv1.VirtualMachine) bool {
	strategy, err := vm.RunStrategy()
	switch {
	case err != nil:
		return false
	case strategy == virtv1.RunStrategyRerunOnFailure:
		return w.phase == virtv1.Failed
	}
	return strategy == virtv1.RunStrategyAlways || strategy == virtv1.RunStrategyManual // by somebody's start
}

// describe says in a few words what a VMI is like.
func describe(vmi *virtv1.VirtualMachineInstance) string {
	text := "in phase " + string(vmi.Status.Phase)
	if vmi.Status.Phase == virtv1.VmPhaseUnset {
		text = "without a phase"
	}
	for _, c := range vmi.Status.Conditions {
		if c.Status == "False" && c.Message != "" {
			text += fmt.Sprintf(", %s=%s (%s: %s)", c.Type, c.Status, c.Reason, c.Message)
		}
	}
	return text
}
