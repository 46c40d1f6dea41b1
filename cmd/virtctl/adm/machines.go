package adm

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	virtv1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-vm/slipway/internal/names"
)

// machines sets how much the launchers of VMs log, by a label of their templates.
type machines struct {
	client       client.Client
	namespace    string
	installation *installation
}

// launcher is the component that VMs without a level of their own are started with.
var launcher = component{flag: "virt-launcher", field: "virtLauncher"}

// show prints how much VMs log, and what they will when they are started again.
func (m machines) show(cmd *cobra.Command, vms []string) error {
	for _, name := range vms {
		vm, err := m.get(cmd.Context(), name)
		if err != nil {
			return err
		}
		next := m.installation.level(launcher)
		if text, labelled := labels(vm)[names.LogVerbosityLabel]; labelled {
			if next, err = strconv.ParseInt(text, 10, 64); err != nil {
				return fmt.Errorf("reading the label %s of VM %s: %w", names.LogVerbosityLabel, name, err)
			}
		}
		now, runs, err := m.running(cmd.Context(), name)
		if err != nil {
			return err
		}
		if !runs {
			now = next
		}
		fmt.Fprintf(cmd.OutOrStdout(), "%s = %d\n", name, now)
		if now != next {
			fmt.Fprintf(cmd.OutOrStdout(), "%s: updated verbosity %d will be applied after the VM is restarted\n", name, next)
		}
	}
	return nil
}

// running is the level that a running VM was started with.
func (m machines) running(ctx context.Context, name string) (level int64, runs bool, err error) {
	pods := &corev1.PodList{}
	selector := client.MatchingLabels{names.LabelVMName: name, virtv1.AppLabel: "virt-launcher"}
	if err := m.client.List(ctx, pods, client.InNamespace(m.namespace), selector); err != nil {
		return 0, false, fmt.Errorf("listing the pods of VM %s: %w", name, err)
	}
	for i := range pods.Items {
		if pods.Items[i].Status.Phase != corev1.PodRunning {
			continue
		}
		for _, c := range pods.Items[i].Spec.Containers {
			if c.Name == names.ComputeContainer {
				return startedWith(c), true, nil
			}
		}
	}
	return 0, false, nil
}

func startedWith(compute corev1.Container) int64 {
	for _, variable := range compute.Env {
		if level, err := strconv.ParseInt(variable.Value, 10, 64); variable.Name == names.EnvLauncherVerbosity && err == nil {
			return level
		}
	}
	return defaultLevel
}

func (m machines) set(cmd *cobra.Command, name, level string) error {
	if err := m.label(cmd.Context(), name, level); err != nil {
		return err
	}
	fmt.Fprintf(cmd.OutOrStdout(), "%s: successfully set the logVerbosity label - need to (re)start vm to apply the new verbosity\n", name)
	return nil
}

func (m machines) reset(cmd *cobra.Command, name string) error {
	if err := m.label(cmd.Context(), name, nil); err != nil {
		return err
	}
	fmt.Fprintf(cmd.OutOrStdout(), "%s: successfully removed the logVerbosity label - need to (re)start vm to apply the reset\n", name)
	return nil
}

// label sets the label of a VM's template; nil removes it.
func (m machines) label(ctx context.Context, name string, level any) error {
	vm, err := m.get(ctx, name)
	if err != nil {
		return err
	}
	data, err := json.Marshal(map[string]any{"spec": map[string]any{"template": map[string]any{"metadata": map[string]any{
		"labels": map[string]any{names.LogVerbosityLabel: level},
	}}}})
	if err != nil {
		return fmt.Errorf("encoding the label: %w", err)
	}
	if err := m.client.Patch(ctx, vm, client.RawPatch(types.MergePatchType, data)); err != nil {
		return fmt.Errorf("labelling VM %s: %w", name, err)
	}
	return nil
}

func (m machines) get(ctx context.Context, name string) (*virtv1.VirtualMachine, error) {
	vm := &virtv1.VirtualMachine{}
	if err := m.client.Get(ctx, client.ObjectKey{Namespace: m.namespace, Name: name}, vm); err != nil {
		return nil, fmt.Errorf("error fetching Virtual Machine: %w", err)
	}
	return vm, nil
}

// labels are those of a VM's template.
func labels(vm *virtv1.VirtualMachine) map[string]string {
	if vm.Spec.Template == nil {
		return nil
	}
	return vm.Spec.Template.ObjectMeta.Labels
}
