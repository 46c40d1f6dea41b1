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
	"k8s.io/apimachinery/pkg/types"
	virtv1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-vm/slipway/internal/await"
)

// Rules are the verbs that this package uses, with delete only for those who delete.
func Rules(deletes bool) []rbacv1.PolicyRule {
	verbs := []string{"get", "list", "watch", "patch"}
	if deletes {
		verbs = append(verbs, "delete")
	}
	return []rbacv1.PolicyRule{
		{APIGroups: []string{"kubevirt.io"}, Resources: []string{"virtualmachines"}, Verbs: verbs},
		{APIGroups: []string{"kubevirt.io"}, Resources: []string{"virtualmachineinstances"}, Verbs: []string{"get", "list", "watch"}},
	}
}

// VM is a VirtualMachine that a task works on.
type VM struct {
	Client client.WithWatch
	Key    client.ObjectKey
	Log    *slog.Logger
}

// Start makes the VM run, when it does not, and returns its instance once that runs and has an
// address on the pod network.
func (v *VM) Start(ctx context.Context) (*virtv1.VirtualMachineInstance, error) {
	vm := &virtv1.VirtualMachine{}
	if err := v.Client.Get(ctx, v.Key, vm); err != nil {
		return nil, fmt.Errorf("getting VirtualMachine %s: %w", v.Key, err)
	}
	if strategy, err := vm.RunStrategy(); err == nil && strategy == virtv1.RunStrategyHalted {
		v.Log.Info("starting VirtualMachine", "name", v.Key.String())
		if err := v.setStrategy(ctx, vm, virtv1.RunStrategyAlways); err != nil {
			return nil, err
		}
	}
	var running *virtv1.VirtualMachineInstance
	phase := virtv1.VmPhaseUnset
	err := await.Object(ctx, v.Client, &virtv1.VirtualMachineInstanceList{}, v.Key,
		func(vmi *virtv1.VirtualMachineInstance, exists bool) (bool, error) {
			if !exists {
				return false, nil
			}
			if vmi.Status.Phase != phase {
				phase = vmi.Status.Phase
				v.Log.Info("VirtualMachineInstance is in phase "+string(phase), "name", v.Key.String())
			}
			running = vmi
			return phase == virtv1.Running && Address(vmi) != "", nil
		})
	if err != nil {
		return nil, fmt.Errorf("starting VirtualMachine %s: %w", v.Key, err)
	}
	return running, nil
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
	vm := &virtv1.VirtualMachine{}
	if err := v.Client.Get(ctx, v.Key, vm); err != nil {
		return fmt.Errorf("stopping VirtualMachine %s: %w", v.Key, err)
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
	if err != nil {
		return fmt.Errorf("waiting until VirtualMachine %s is gone: %w", v.Key, err)
	}
	return nil
}

func (v *VM) gone(ctx context.Context) error {
	err := await.Object(ctx, v.Client, &virtv1.VirtualMachineInstanceList{}, v.Key,
		func(_ *virtv1.VirtualMachineInstance, exists bool) (bool, error) { return !exists, nil })
	if err != nil {
		return fmt.Errorf("waiting until VirtualMachineInstance %s is gone: %w", v.Key, err)
	}
	return nil
}

// setStrategy changes how the VM runs, unless it was changed meanwhile.
func (v *VM) setStrategy(ctx context.Context, vm *virtv1.VirtualMachine, strategy virtv1.VirtualMachineRunStrategy) error {
	patch, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"uid": vm.UID},
		"spec":     map[string]any{"running": nil, "runStrategy": strategy},
	})
	if err != nil {
		return fmt.Errorf("encoding the patch: %w", err)
	}
	err = v.Client.Patch(ctx, vm, client.RawPatch(types.MergePatchType, patch))
	if apierrors.IsConflict(err) {
		return errors.New("VirtualMachine " + v.Key.String() + " was replaced by another of its name; run the task again")
	}
	if err != nil {
		return fmt.Errorf("setting runStrategy of VirtualMachine %s to %s: %w", v.Key, strategy, err)
	}
	return nil
}
